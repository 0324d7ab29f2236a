"""The command line: `draftsmith <room> <command> [--config file.yaml] [--key value]...`.

Jobs are reached by name and imported when chosen, so that help and mistakes need no torch.
"""

import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from draftsmith.configs.base import ConfigError
from draftsmith.configs.fields import Settings, describe, nearest, settings_by_key
from draftsmith.configs.help import command_help, overview
from draftsmith.configs.loading import dump_config, load_config

DONE, FAILED, BAD_USAGE, INTERRUPTED = 0, 1, 2, 130
HELP = ("--help", "-h")


class Command(NamedTuple):
    """A job: where its config, its short flags and its `run(config)` are, as `module:name`."""

    summary: str
    config: str
    aliases: str
    job: str


ROOMS = {
    "capture": "Run prompts through a target model and store its hidden states.",
    "train": "Fit a drafter on a captured dataset.",
    "infer": "Run a target with a drafter, and measure the pair.",
}
COMMANDS = {
    "capture": {
        "run": Command(
            "Capture a dataset; run it again to continue one that was interrupted.",
            "draftsmith.configs.capture:CaptureConfig",
            "draftsmith.configs.capture:RUN_ALIASES",
            "draftsmith.capture.job:run",
        ),
        "verify": Command(
            "Check a captured dataset: every hash, length and count.",
            "draftsmith.configs.capture:CaptureVerifyConfig",
            "draftsmith.configs.capture:VERIFY_ALIASES",
            "draftsmith.capture.dataset.verify:run",
        ),
    },
    "train": {
        "run": Command(
            "Train a drafter; run it again to continue from the last checkpoint.",
            "draftsmith.configs.train:TrainConfig",
            "draftsmith.configs.train:RUN_ALIASES",
            "draftsmith.train.job:run",
        ),
    },
    "infer": {
        "generate": Command(
            "Answer a file of prompts, with or without a drafter.",
            "draftsmith.configs.infer:GenerateConfig",
            "draftsmith.configs.infer:GENERATE_ALIASES",
            "draftsmith.infer.generate:run",
        ),
        "eval": Command(
            "Report what a drafter is worth: acceptance, exactness, speed.",
            "draftsmith.configs.infer:EvalConfig",
            "draftsmith.configs.infer:EVAL_ALIASES",
            "draftsmith.infer.evaluate:run",
        ),
    },
}


class Flags(NamedTuple):
    """What stood on the command line after the command's name."""

    help: bool
    config: str | None
    overrides: list[tuple[str, str]]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code: 0 done, 2 bad usage or config, 1 failed."""
    try:
        return dispatch(list(sys.argv[1:] if argv is None else argv))
    except ConfigError as error:
        report(str(error))
        return BAD_USAGE
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        report(f"{where}{error.strerror or error}")
        return FAILED
    except ValueError as error:
        report(str(error))
        return FAILED
    except KeyboardInterrupt:
        report("interrupted; the same command continues where this one stopped")
        return INTERRUPTED


def report(message: str) -> None:
    print("error: " + message.replace("\n", "\n       "), file=sys.stderr)


def dispatch(arguments: list[str]) -> int:
    """Find the room, then the command, then run it; help is given at each level."""
    if not arguments or arguments[0] in HELP:
        print(program_help())
        return DONE if arguments else BAD_USAGE
    if arguments[0] == "--version":
        from importlib.metadata import version

        print(f"draftsmith {version('draftsmith')}")
        return DONE
    room, *rest = arguments
    if room not in COMMANDS:
        raise ConfigError(unknown_word("draftsmith", room, COMMANDS))
    if not rest or rest[0] in HELP:
        print(room_help(room))
        return DONE if rest else BAD_USAGE
    name, *flags = rest
    if name not in COMMANDS[room]:
        raise ConfigError(unknown_word(f"draftsmith {room}", name, COMMANDS[room]))
    return run_command(f"{room} {name}", COMMANDS[room][name], flags)


def run_command(name: str, command: Command, arguments: list[str]) -> int:
    model, aliases = load(command.config), load(command.aliases)
    flags = parse_flags(arguments, settings_by_key(model), aliases)
    if flags.help:
        print(command_help(name, command.summary, model, aliases))
        return DONE
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        config = load_config(model, flags.config, flags.overrides, aliases)
    for warning in caught:
        print(f"warning: {warning.message}", file=sys.stderr)
    print(f"# draftsmith {name}\n{dump_config(config)}", file=sys.stderr, flush=True)
    load(command.job)(config)
    return DONE


def parse_flags(arguments: Sequence[str], settings: Settings, aliases: Mapping[str, str]) -> Flags:
    """Read `--key value`, `--key=value` and bare boolean `--key`, by dotted key or short flag."""
    config: str | None = None
    overrides: list[tuple[str, str]] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument in HELP:
            return Flags(True, None, [])
        if not argument.startswith("--"):
            raise ConfigError(f"{argument}: unexpected; settings are given as --key value")
        name, equals, text = argument[2:].partition("=")
        key = aliases.get(name, name)
        if name != "config" and key not in settings:
            raise ConfigError(unknown_flag(name, settings, aliases))
        if not equals:
            wanted = "a YAML file" if name == "config" else describe(settings[key][0].field)
            bare = name != "config" and settings[key][0].accepts_bool
            if bare and rest[:1] not in (["true"], ["false"]):
                text = "true"
            elif not rest or rest[0].startswith("--"):
                raise ConfigError(f"--{name} needs a value: {wanted}")
            else:
                text = rest.pop(0)
        if name != "config":
            overrides.append((key, text))
        elif config is not None:
            raise ConfigError(f"--config {text}: given twice; one file, then flags over it")
        else:
            config = text
    return Flags(False, config, overrides)


def unknown_word(before: str, word: str, known: Mapping[str, Any]) -> str:
    hint = nearest(word, known)
    meant = f"did you mean {hint}?" if hint else f"accepted: {', '.join(known)}"
    return f"{before} {word}: no such command; {meant}"


def unknown_flag(name: str, settings: Settings, aliases: Mapping[str, str]) -> str:
    hint = nearest(name, [*aliases, *settings, "config", "help"])
    meant = f"did you mean --{hint}?" if hint else "--help lists all settings"
    return f"--{name}: unknown setting; {meant}"


def load(name: str) -> Any:
    """The object behind `module:name`."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


def program_help() -> str:
    entries = [
        (f"{room} {name}", command.summary)
        for room, commands in COMMANDS.items()
        for name, command in commands.items()
    ]
    return overview(
        "draftsmith <room> <command> [--config FILE.yaml] [--key value]...",
        entries,
        "draftsmith <room> <command> --help lists every setting; --version prints the version.",
    )


def room_help(room: str) -> str:
    entries = [(name, command.summary) for name, command in COMMANDS[room].items()]
    return f"draftsmith {room}: {ROOMS[room]}\n\n" + overview(
        f"draftsmith {room} <command> [--config FILE.yaml] [--key value]...",
        entries,
        f"draftsmith {room} <command> --help lists every setting.",
    )


if __name__ == "__main__":
    sys.exit(main())
