"""The page's style: fluid from a phone up, light or dark as the reader's system asks."""

STYLESHEET = """\
:root {
  color-scheme: light dark;
  --paper: #fbfaf8; --panel: #ffffff; --ink: #1d2227; --quiet: #5c656e; --rule: #e2e0db;
  --bar: #b9d2e6; --line: #b4471f; --warn: #fff4d9; --warn-rule: #d9a21b;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14171a; --panel: #1c2024; --ink: #e8eaec; --quiet: #a0a9b2; --rule: #31373d;
    --bar: #2f5574; --line: #f19a6e; --warn: #33290f; --warn-rule: #b98a1a;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif;
  font-variant-numeric: tabular-nums; -webkit-text-size-adjust: 100%;
}
main {
  max-width: 68rem; margin: 0 auto;
  padding: clamp(1.25rem, 4vw, 3rem) clamp(1rem, 4vw, 2.5rem);
}
h1 {
  font-size: clamp(1.4rem, 1.1rem + 1.6vw, 2rem); line-height: 1.2; margin: 0 0 .4rem;
  letter-spacing: -.01em; overflow-wrap: anywhere;
}
h2 { font-size: 1.05rem; margin: 0 0 .6rem; }
p { margin: 0 0 .6rem; }
section, details { margin-top: 2.25rem; }
.quiet { color: var(--quiet); font-size: .9rem; overflow-wrap: anywhere; }
.warnings {
  margin-top: 1.25rem; padding: .7rem 1rem; background: var(--warn);
  border-left: 4px solid var(--warn-rule); border-radius: 4px; overflow-wrap: anywhere;
}
.warnings ul { margin: 0; padding: 0; list-style: none; }
.warnings li + li { margin-top: .4rem; }
.cards {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(min(10rem, 100%), 1fr));
  gap: .8rem; margin: 1.5rem 0 0;
}
.card, figure { background: var(--panel); border: 1px solid var(--rule); border-radius: 10px; }
.card { padding: .9rem 1.1rem 1rem; }
.card dt { color: var(--quiet); font-size: .9rem; }
.card dd { margin: 0; }
.card .figure { font-size: 2rem; line-height: 1.25; font-weight: 650; letter-spacing: -.02em; }
.card .bad { color: var(--line); }
.card .quiet { font-size: .85rem; line-height: 1.4; }
.plots {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(min(22rem, 100%), 1fr));
  gap: .8rem; margin-top: .8rem;
}
figure { margin: 0; padding: .9rem clamp(.6rem, 2vw, 1.1rem) .6rem; }
figcaption {
  display: flex; flex-wrap: wrap; gap: .1rem 1rem; align-items: baseline;
  margin-bottom: .5rem;
}
.keys {
  display: inline-flex; gap: 1rem; color: var(--quiet); font-size: .85rem; white-space: nowrap;
}
.keys i { display: inline-block; width: .9em; margin-right: .4em; vertical-align: middle; }
.swatch-bar { height: .8em; background: var(--bar); border-radius: 2px; }
.swatch-line { height: 3px; background: var(--line); border-radius: 2px; }
svg { display: block; width: 100%; height: auto; }
svg text { font-size: 11px; fill: var(--ink); }
svg .tick, svg .label { fill: var(--quiet); }
svg .middle { text-anchor: middle; }
svg .end { text-anchor: end; }
svg .strong { fill: var(--line); font-weight: 650; }
svg .small { font-size: 9px; }
svg .halo { paint-order: stroke; stroke: var(--panel); stroke-width: 3px; stroke-linejoin: round; }
svg .bar { fill: var(--bar); }
svg .line { fill: none; stroke: var(--line); stroke-width: 2; stroke-linejoin: round; }
svg .dot { fill: var(--line); stroke: var(--panel); stroke-width: 1.5; }
svg .grid { stroke: var(--rule); }
svg .axis { stroke: var(--quiet); }
.scroll { overflow-x: auto; }
table { width: 100%; border-collapse: collapse; font-size: .92rem; }
th, td {
  padding: .45rem .6rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--rule);
}
th { color: var(--quiet); font-weight: 500; font-size: .85rem; }
.word { text-align: left; }
td.word { white-space: normal; overflow-wrap: anywhere; }
th:first-child, td:first-child { padding-left: 0; }
th:last-child, td:last-child { padding-right: 0; }
.facts { margin: 0; }
.facts div {
  display: grid; grid-template-columns: minmax(0, 1fr); padding: .5rem 0;
  border-bottom: 1px solid var(--rule);
}
.facts dt { color: var(--quiet); font-size: .9rem; overflow-wrap: anywhere; }
.facts dd { margin: 0; overflow-wrap: anywhere; }
@media (min-width: 44rem) {
  .facts div { grid-template-columns: 15rem minmax(0, 1fr); gap: 1rem; }
}
summary { cursor: pointer; font-weight: 650; }
pre {
  margin: .8rem 0 0; padding: 1rem; overflow-x: auto; font-size: .85rem; line-height: 1.5;
  background: var(--panel); border: 1px solid var(--rule); border-radius: 10px;
}
:focus-visible { outline: 2px solid var(--line); outline-offset: 2px; }
@media (max-width: 30rem) {
  th, td { padding: .4rem .25rem; }
  table { font-size: .8rem; }
  th { font-size: .72rem; }
  svg text { font-size: 12.5px; }
  svg .small { font-size: 10px; }
  .card { padding: .7rem .8rem .8rem; }
  .card .figure { font-size: 1.7rem; }
}
@media print { details { display: none; } .card, figure, tr { break-inside: avoid; } }
"""
