"""The command line: grammar, help, exit codes, and what it leaves unimported."""

import resource
import subprocess
import sys
from types import SimpleNamespace

import pytest

from draftsmith.configs import cli
from draftsmith.configs.base import ConfigError
from draftsmith.configs.train import TrainConfig
from draftsmith.configs.yaml_text import read_yaml

TRAIN = ["train", "run", "--target", "t", "--data", "d", "--output", "o", "--max-steps", "3"]
GENERATE = ["infer", "generate", "--target", "t", "--input", "i", "--output", "o"]
EVERY_COMMAND = [(room, name) for room, commands in cli.COMMANDS.items() for name in commands]


@pytest.fixture
def jobs(monkeypatch):
    """Jobs that only remember the config they were given, or raise what `jobs.raises` holds."""
    state = SimpleNamespace(configs=[], raises=None)

    def run(config):
        state.configs.append(config)
        if state.raises is not None:
            raise state.raises

    for commands in cli.COMMANDS.values():
        for command in commands.values():
            module = command.job.partition(":")[0]
            monkeypatch.setitem(sys.modules, module, SimpleNamespace(run=run))
    return state


def test_a_command_runs_its_job_with_the_resolved_config_and_shows_it(jobs, capsys):
    assert cli.main([*TRAIN, "--lr", "1e-3", "--optimizer.betas=0.8,0.9", "--epochs", "2"]) == 0
    (config,) = jobs.configs
    assert isinstance(config, TrainConfig)
    assert config.optimizer.lr == 1e-3
    assert config.optimizer.betas == (0.8, 0.9)
    assert config.budget.num_epochs == 2.0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("# draftsmith train run\n")
    assert read_yaml(shown.err) == config.model_dump(mode="json")


def test_flags_win_over_the_file(jobs, tmp_path):
    file = tmp_path / "train.yaml"
    file.write_text("seed: 5\noptimizer: {lr: 1e-2, weight_decay: 0.1}\n")
    assert cli.main([*TRAIN, "--lr", "2e-2", "--config", str(file)]) == 0
    (config,) = jobs.configs
    assert (config.seed, config.optimizer.lr, config.optimizer.weight_decay) == (5, 2e-2, 0.1)


@pytest.mark.parametrize(
    ("flags", "value"),
    [
        (["--trace"], True),
        (["--trace", "--batch-size", "2"], True),
        (["--trace", "false"], False),
        (["--trace=false"], False),
        (["--trace=true"], True),
        ([], False),
    ],
)
def test_a_boolean_flag_needs_no_value(jobs, flags, value):
    assert cli.main([*GENERATE, *flags]) == 0
    assert jobs.configs[0].trace is value


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "draftsmith trian: no such command; did you mean train?"),
        (["zzz"], "draftsmith zzz: no such command; accepted: capture, train, infer"),
        (["infer", "evall"], "draftsmith infer evall: no such command; did you mean eval?"),
        (["--verson"], "draftsmith --verson: no such command"),
        ([*TRAIN, "--lrr", "1"], "--lrr: unknown setting; did you mean --lr?"),
        (
            [*TRAIN, "--optimzer.lr", "1"],
            "--optimzer.lr: unknown setting; did you mean --optimizer.lr?",
        ),
        ([*TRAIN, "--max-step", "1"], "--max-step: unknown setting; did you mean --max-steps?"),
        ([*TRAIN, "--zzz", "1"], "--zzz: unknown setting; --help lists all settings"),
        ([*TRAIN, "--lr"], "--lr needs a value: number > 0"),
        ([*TRAIN, "--lr", "--seed", "1"], "--lr needs a value: number > 0"),
        ([*TRAIN, "--config"], "--config needs a value: a YAML file"),
        ([*TRAIN, "--config", "a", "--config", "b"], "--config b: given twice"),
        ([*TRAIN, "--config", "absent.yaml"], "absent.yaml: no such file"),
        ([*TRAIN, "extra"], "extra: unexpected; settings are given as --key value"),
        ([*GENERATE, "--trace", "yes"], "yes: unexpected"),
        ([*TRAIN, "--lr", "abc"], "optimizer.lr=abc: accepted: number > 0"),
        (TRAIN[:-2], "budget: give at least one of num_epochs, max_steps and max_minutes"),
        (
            ["infer", "eval"],
            "target.path: required; give --target, or target.path in the config file\n"
            "       drafter: required; give --drafter, or drafter in the config file\n",
        ),
    ],
)
def test_bad_usage_is_explained_and_exits_with_2(jobs, capsys, arguments, message):
    assert cli.main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: " + message)
    assert jobs.configs == []


@pytest.mark.parametrize(
    ("raised", "code", "message"),
    [
        (ConfigError("input.path=x: no rows"), 2, "error: input.path=x: no rows\n"),
        (ValueError("shard 3 is cut short"), 1, "error: shard 3 is cut short\n"),
        (ValueError("two\nlines"), 1, "error: two\n       lines\n"),
        (FileNotFoundError(2, "No such file", "a/b"), 1, "error: a/b: No such file\n"),
        (OSError("disk full"), 1, "error: disk full\n"),
        (KeyboardInterrupt(), 130, "error: interrupted; the same command continues where"),
    ],
)
def test_a_failing_job_exits_with_its_code_and_no_traceback(jobs, capsys, raised, code, message):
    jobs.raises = raised
    assert cli.main(TRAIN) == code
    assert message in capsys.readouterr().err


def test_a_warning_about_a_setting_is_one_line(jobs, capsys):
    given = ["--target", "t", "--input", "i", "--output", "o"]
    moe = ["--speculative_config.moe_backend", "TRITON"]
    assert cli.main(["capture", "run", *given, *moe]) == 0
    assert capsys.readouterr().err.startswith("warning: moe_backend=TRITON: ignored")
    assert jobs.configs[0].speculative_config.moe_backend is None


def test_a_bug_is_not_dressed_up_as_a_user_error(jobs, monkeypatch):
    jobs.raises = KeyError("x")
    with pytest.raises(KeyError):
        cli.main(TRAIN)
    broken = cli.COMMANDS["train"]["run"]._replace(job="draftsmith.train.absent:run")
    monkeypatch.setitem(cli.COMMANDS["train"], "run", broken)
    with pytest.raises(ModuleNotFoundError):
        cli.main(TRAIN)


def test_help_at_each_level(capsys):
    assert cli.main(["--help"]) == 0
    top = capsys.readouterr().out
    assert all(f"{room} {name}" in top for room, name in EVERY_COMMAND)
    assert cli.main(["infer", "-h"]) == 0
    room = capsys.readouterr().out
    assert "generate" in room and "eval" in room and "capture" not in room
    assert cli.main([]) == 2
    assert cli.main(["infer"]) == 2
    assert capsys.readouterr().out == top + room


@pytest.mark.parametrize(("room", "name"), EVERY_COMMAND)
def test_help_of_a_command_lists_every_setting_with_its_alias_meaning_and_default(
    capsys, room, name
):
    assert cli.main([room, name, "--help"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 100
    command = cli.COMMANDS[room][name]
    settings = cli.settings_by_key(cli.load(command.config))
    for key, (setting, *_) in settings.items():
        assert setting.field.description, f"{key} has no docstring"
        if not setting.models:
            assert f"--{key} " in text or f"--{key}\n" in text
    for alias, key in cli.load(command.aliases).items():
        assert key in settings, f"--{alias} leads to {key}, which is no setting"
        assert f"--{alias}, --{key}" in text or alias == key
    assert "required" in text


def test_help_tells_meaning_limits_and_default(capsys):
    assert cli.main(["train", "run", "--lr", "1", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "--lr, --optimizer.lr Peak learning rate. [number > 0; default 0.0001]" in text
    assert "default 0.9,0.95]" in text
    assert "[integer > 0; default none]" in text


def test_version(capsys):
    assert cli.main(["--version"]) == 0
    name, version = capsys.readouterr().out.split()
    assert name == "draftsmith" and version[0].isdigit()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        *([room, "--help"] for room in cli.COMMANDS),
        *([room, name, "--help"] for room, name in EVERY_COMMAND),
        ["trian"],
    ],
    ids=" ".join,
)
def test_help_is_quick_and_imports_no_heavy_library(arguments):
    code = (
        "import sys; from draftsmith.configs.cli import main; main(sys.argv[1:]); "
        "print([m for m in ('torch', 'numpy', 'transformers') if m in sys.modules])"
    )
    seconds = []
    for _ in range(3):
        before = children_seconds()
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60
        )
        seconds.append(children_seconds() - before)
        assert done.stdout.splitlines()[-1] == "[]", done.stderr
    print(f"{' '.join(arguments)}: {', '.join(f'{second:.2f}' for second in seconds)} s")
    # Time on the processor, about 0.25 s; the least of the runs is the one least disturbed.
    assert min(seconds) < 0.5


def children_seconds():
    """Processor time of all child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
