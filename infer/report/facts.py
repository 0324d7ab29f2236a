"""What a report states, as text in reading order: worded once for every form it is shown in."""

from draftsmith.infer.report import numerals
from draftsmith.infer.report.schema import Report, Speed


def report_title(report: Report) -> str:
    """`draft on target`, or a plain title when the report names neither."""
    names = " on ".join(name for name in (report.draft, report.target) if name)
    return names or "Speculative decoding report"


def headline(report: Report) -> list[tuple[str, str]]:
    """The summary as (measure, value) in words, in reading order."""
    summary = report.summary
    length = numerals.write_length(summary.acceptance_length)
    if summary.acceptance_length_interval is not None:
        length += f" (95 %: {numerals.write_interval(summary.acceptance_length_interval)})"
    speeds = summary.tokens_per_second
    lossless = numerals.write_lossless(summary.lossless)
    if report.parity is not None:
        lossless += f" ({report.parity.num_equal} of {report.parity.num_prompts} outputs equal, "
        lossless += f"{report.parity.dtype})"
    return [
        ("Acceptance length", length),
        ("Acceptance rate", numerals.write_percent(summary.acceptance_rate)),
        ("Speed-up", numerals.write_ratio(summary.speedup)),
        ("Tokens per second, plain", numerals.write_rate(speeds.plain)),
        ("Tokens per second, speculative", numerals.write_rate(speeds.speculative)),
        ("Lossless", lossless),
        ("Number format", summary.dtype),
        ("Draft length", numerals.write_count(summary.max_draft_len)),
        ("Prompts", numerals.write_count(summary.num_prompts)),
    ]


def environment(report: Report) -> list[tuple[str, str]]:
    """Prompts, machine and versions as (name, value), in reading order."""
    prompts, machine, versions = report.prompts, report.machine, report.versions
    split = f", split {prompts.split}" if prompts.split else ""
    memory = "unknown" if machine.memory_gib is None else f"{machine.memory_gib:.1f} GiB"
    return [
        (
            "Prompt set",
            f"{prompts.path}{split} ({numerals.write_count(prompts.num_prompts)})",
        ),
        ("Device", machine.device),
        ("Processor", machine.cpu),
        ("Cores, threads", f"{machine.num_cores}, {machine.num_threads}"),
        ("Memory", memory),
        ("System", versions.platform),
        ("Python", versions.python),
        ("draftsmith", versions.draftsmith or "not installed"),
        ("torch", versions.torch or "not installed"),
        ("transformers", versions.transformers or "not installed"),
    ]


POSITION_COLUMNS = ("Position", "Proposed", "Reached", "Accepted", "Conditional", "Survival")


def position_rows(report: Report) -> list[tuple[str, ...]]:
    """One row of `POSITION_COLUMNS` per drafted position."""
    figures = report.acceptance
    return [
        (
            str(k),
            numerals.write_count(figures.proposed_at[k]),
            numerals.write_count(figures.reached_at[k]),
            numerals.write_count(figures.accepted_at[k]),
            numerals.write_percent(figures.conditional_acceptance[k]),
            numerals.write_percent(figures.survival[k]),
        )
        for k in range(figures.max_draft_len)
    ]


CATEGORY_COLUMNS = ("Category", "Length", "Rate", "Prompts")


def category_rows(report: Report) -> list[tuple[str, ...]]:
    """One row of `CATEGORY_COLUMNS` per category of prompts."""
    return [
        (
            name,
            numerals.write_length(figures.acceptance_length),
            numerals.write_percent(figures.acceptance_rate),
            numerals.write_count(figures.num_prompts),
        )
        for name, figures in report.by_category.items()
    ]


SPEED_COLUMNS = ("Repeat", "Ran first", "Plain", "Speculative", "Speed-up")


def speed_setting(speed: Speed) -> str:
    """What was timed, in words."""
    return f"{speed.num_prompts} prompts, {speed.batch_size} at a time"


def speed_rows(report: Report) -> list[tuple[str, ...]]:
    """One row of `SPEED_COLUMNS` per timed repeat, none if speed was not measured."""
    if report.speed is None:
        return []
    pairs = zip(report.speed.repeats, report.speed.ratios, strict=True)
    return [
        (
            str(number),
            repeat.first,
            numerals.write_rate(repeat.plain_rate),
            numerals.write_rate(repeat.speculative_rate),
            numerals.write_ratio(ratio),
        )
        for number, (repeat, ratio) in enumerate(pairs, start=1)
    ]


def count_sentence(report: Report) -> str:
    """The raw counts behind the two headline figures."""
    figures = report.acceptance
    return (
        f"{numerals.write_count(figures.num_emitted)} tokens emitted in "
        f"{numerals.write_count(figures.num_rounds)} rounds; "
        f"{numerals.write_count(figures.num_accepted)} of "
        f"{numerals.write_count(figures.num_drafted)} drafted tokens accepted."
    )
