"""The command line as a whole: instant help, one-line errors, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from rejoinder.cli import config as config_commands
from rejoinder.cli import terminal
from rejoinder.cli.main import EXIT_FAULT, EXIT_INTERRUPTED, app
from rejoinder.cli.misplaced import WITH_VALUE
from rejoinder.errors import EXIT_CONFIG, EXIT_REFUSED
from rejoinder.journal.records import RoleReport
from rejoinder.journal.sql import SqlJournal

RULE = '[[gateway.session_rules]]\nname = "x"\n'
HEAVY = ("torch", "transformers", "sqlalchemy", "fastapi", "pydantic", "aiohttp", "matplotlib")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # commands add the working directory
    monkeypatch.setenv("REJOINDER_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("REJOINDER_API_KEYS", raising=False)
    terminal.out.cache_clear()
    terminal.err.cache_clear()


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.stdout, result.stderr


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; from rejoinder.cli.main import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        f"print('heavy:', [name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "heavy: []" in done.stdout
    for command in ("up", "gateway", "engine", "judge", "trainer", "chat", "status", "policy",
                    "config", "doctor", "demo", "records", "explain"):  # fmt: skip
        assert command in done.stdout


def test_help_is_broken_where_the_terminal_ends_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Docstrings are wider than eighty columns: each of their lines left a word on its own."""
    monkeypatch.setenv("COLUMNS", "80")
    _, told, _ = run("eval", "personas", "--help")
    lines = [line.strip() for line in told.splitlines()]
    start = next(n for n, line in enumerate(lines) if line.startswith("Each run is a file"))
    text = lines[start : lines.index("", start)]
    assert all(len(line) > 60 for line in text[:-1]), text


def test_a_fault_of_the_configuration_is_one_line_with_an_exit_code_of_its_own() -> None:
    code, out, err = run("--config", "nowhere.toml", "up")
    assert (code, out) == (EXIT_CONFIG, "")
    assert err == "error: cannot read nowhere.toml: No such file or directory\n"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["status", "--home", "/x y"], "rejoinder --home '/x y' status"),
        (["policy", "--home=/x", "list"], "rejoinder --home=/x policy list"),
        (
            ["--home", "h", "policy", "export", "to", "--version", "3", "--config", "a.toml"],
            "rejoinder --home h --config a.toml policy export to --version 3",
        ),
        (["chat", "--config"], "rejoinder --config FILE chat"),
        (["status", "--home=", "--json"], "rejoinder --home DIRECTORY status --json"),
        (["status", "--home", "--json"], "rejoinder --home DIRECTORY status --json"),
    ],
)
def test_an_option_of_every_command_behind_its_name_is_told_where_it_goes(
    given: list[str], meant: str
) -> None:
    """It was "No such option", although the help of the whole has it."""
    code, out, err = run(*given)
    assert (code, out) == (EXIT_REFUSED, "")
    assert err.endswith(f" goes before the command: `{meant}`\n")


def test_every_option_with_a_value_that_goes_before_the_command_is_known_as_such() -> None:
    """The list is its own, so that the value's place may be told; it must not fall behind."""
    options = get_command(app).params
    assert {one.opts[0] for one in options if not getattr(one, "is_flag", True)} == {*WITH_VALUE}


def test_an_option_that_no_command_has_is_no_misplaced_one() -> None:
    code, _, err = run("status", "--hme", "x")
    assert code == EXIT_REFUSED
    assert "before the command" not in err
    assert "No such option" in err


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["up", "--port", "9000"], "has gateway.port or engine.port."),
        (["trainer", "--batch-size", "4"], "has trainer.batch_size."),
        (["explain", "0123"], "No such command '0123'. There are: turn."),
        (["policy", "rolback"], "Did you mean 'rollback'?"),
    ],
)
def test_what_a_command_does_not_take_is_told_with_what_there_is(
    given: list[str], told: str
) -> None:
    code, out, err = run(*given)
    assert (code, out) == (EXIT_REFUSED, "")
    assert told in " ".join(err.replace("│", " ").split())


def test_an_option_that_is_no_key_is_told_as_it_is() -> None:
    _, _, err = run("up", "--prot", "9000")
    assert "rejoinder.toml" not in err
    _, _, err = run("demo", "--port", "9000")  # it picks its own ports
    assert "rejoinder.toml" not in err


def test_an_unknown_key_names_the_key() -> None:
    Path("rejoinder.toml").write_text("[gateway]\nprot = 1\n")
    code, _, err = run("config", "show")
    assert code == EXIT_CONFIG
    assert "gateway.prot" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "[trainer]\nbatch_sise = 4\n",
            "trainer.batch_sise: no such key; did you mean batch_size?",
        ),
        ("[trainer.lora]\nrnk = 4\n", "trainer.lora.rnk: no such key; did you mean rank?"),
        ("[trainr]\n", "trainr: no such key; did you mean trainer?"),
        ("batch_size = 4\n", "batch_size: no such key; did you mean trainer.batch_size?"),
        (
            '[trainer]\nweights = "ema"\n',
            "trainer.weights: no such key; did you mean trainer.teacher.weights?",
        ),
        ("port = 9\n", "port: no such key; did you mean gateway.port or engine.port?"),
        (
            '[gateway.key_limits]\nkey = "x"\n',
            "gateway.key_limits: there can be several, so its heading has two brackets: [[gateway.",
        ),
        ("[gateway]\nmetrics_keys = 3\n", "gateway.metrics_keys: should be a list, in brackets"),
        ("[judge]\nvotes = 3\n", "judge.votes: no such key with kind = 'likelihood'"),
        ('[judge]\nkind = "callable"\n', "judge.target is required with kind = 'callable'"),
        ('[judge]\nkind = "calable"\n', "judge.kind: 'calable' is not one of 'likelihood', 'llm'"),
        ('log_level = "loud"\n', "log_level: 'loud' is not one of 'debug', 'info'"),
        ("[trainer]\nbetas = [1.5, 0.9]\n", "trainer.betas: each must be at least 0 and below 1"),
        ("[judge]\nmargin = -1\n", "judge.margin: Input should be greater than"),
        ("[evaluation]\nevery = 1\n", "evaluation: evaluation.every needs"),
        ('[gateway]\nside_openings = ["Hi"]\n', "gateway.side_openings: write them in lower case"),
        (f"{RULE}", "gateway.session_rules.0.look_in is required"),
        (f'{RULE}look_in = "body"\n', "gateway.session_rules.0.look_in: String should match"),
        (f'{RULE}look_in = "system"\n', "gateway.session_rules.0: a session rule that looks in"),
        (
            f'{RULE}look_in = "prompt_cache_key"\naftr = []\n',
            "gateway.session_rules.0.aftr: no such",
        ),
    ],
)
def test_a_fault_in_the_file_is_told_in_the_files_own_words(text: str, told: str) -> None:
    Path("rejoinder.toml").write_text(text)
    code, _, err = run("config", "check")
    assert code == EXIT_CONFIG
    assert f"\n  {told}" in err


def test_a_section_that_was_pasted_below_its_like_is_told_to_go_into_it() -> None:
    """The parser's own words show the key as Python's tuple, and no remedy."""
    Path("rejoinder.toml").write_text("[trainer.loss]\n[trainer]\n[trainer.loss]\n")
    code, _, err = run("config", "check")
    assert code == EXIT_CONFIG
    assert "TOML: [trainer.loss] stands twice: put its keys under one heading (at line 3" in err


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [("trainer", "grad_clip", "inf"), ("judge", "timeout_s", "inf"), ("judge", "margin", "nan"),
     ("judge.options", "x", "inf")],
)  # fmt: skip
def test_a_number_that_is_not_finite_is_refused(section: str, key: str, value: str) -> None:
    plugin = '[judge]\nkind = "plugin"\nname = "x"\n' if section == "judge.options" else ""
    Path("rejoinder.toml").write_text(f"{plugin}[{section}]\n{key} = {value}\n")
    code, _, err = run("config", "check")
    assert code == EXIT_CONFIG
    assert f".{key}" in err
    assert "finite number" in err


def test_an_unexpected_error_says_where_its_trace_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(*_: object) -> None:
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(config_commands, "_refuse", explode)
    code, _, err = run("config", "check")
    log = Path(os.environ["REJOINDER_HOME"]) / "logs" / "commands.log"
    assert code == EXIT_FAULT
    assert f"unexpected fault: ZeroDivisionError: a fault; the trace is in {log}" in err
    assert "explode" in log.read_text()


def test_ctrl_c_ends_a_command_with_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rejoinder.evaluation.demo.run_demo", lambda *_, **__: wait())
    code, _, err = run("demo")
    assert (code, err) == (EXIT_INTERRUPTED, "error: stopped by Ctrl-C\n")


def test_config_show_can_be_read_back_and_says_where_it_came_from() -> None:
    Path("rejoinder.toml").write_text('[gateway]\nport = 9\n[judge]\nkind = "feedback"\n')
    code, out, _ = run("config", "show")
    assert code == 0
    assert "# From: rejoinder.toml" in out
    Path("again.toml").write_text(out)
    assert "port = 9" in run("--config", "again.toml", "config", "show")[1]


def test_config_show_refuses_what_cannot_learn_and_still_prints_it() -> None:
    Path("rejoinder.toml").write_text('[engine]\nkind = "scripted"\n')
    code, out, err = run("config", "show")
    assert code == EXIT_CONFIG
    assert 'kind = "scripted"' in out
    assert "set it to 'torch'" in err


def test_a_start_with_a_misspelt_function_ends_as_a_fault_of_the_configuration() -> None:
    Path("mine.py").write_text("def score(*_):\n    return 1\n")
    Path("rejoinder.toml").write_text('[judge]\nkind = "callable"\ntarget = "mine:scoer"\n')
    code, _, err = run("up")
    assert code == EXIT_CONFIG
    assert "the module 'mine' has no 'scoer'" in err


def test_secrets_are_never_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REJOINDER_API_KEYS", "home:laptop:sk-SECRET-123")
    monkeypatch.setenv("JUDGE_KEY", "another-secret")
    monkeypatch.setenv("HINTS_KEY", "a-third-secret")
    Path("rejoinder.toml").write_text(
        '[judge]\nkind = "llm"\nbase_url = "http://127.0.0.1:1/v1"\nmodel = "m"\n'
        'api_key_env = "JUDGE_KEY"\n'
        '[hints]\nkind = "llm"\nbase_url = "http://127.0.0.1:1/v1"\nmodel = "m"\n'
        'api_key_env = "HINTS_KEY"\n'
        '[trainer]\nalgorithm = "combine"\n'
    )
    code, out, err = run("config", "show")
    assert code == 0, err
    assert "REJOINDER_API_KEYS (set, 1 keys)" in out
    assert "JUDGE_KEY (set)" in out
    assert "HINTS_KEY (set)" in out
    assert "SECRET" not in out + err
    assert "another-secret" not in out + err
    assert "a-third-secret" not in out + err


def test_the_home_option_wins_over_file_and_environment(tmp_path: Path) -> None:
    Path("rejoinder.toml").write_text('home = "/from/the/file"\n')
    _, out, _ = run("--home", "mine", "config", "show")
    assert f'home = "{tmp_path / "mine"}"' in out


@pytest.mark.parametrize("command", [["status"], ["policy", "list"], ["records", "size"]])
def test_reading_a_journal_that_is_not_there_makes_none(command: list[str]) -> None:
    code, _, err = run(*command)
    assert code == EXIT_REFUSED
    assert "rejoinder up" in err
    assert not Path(os.environ["REJOINDER_HOME"]).exists()


def test_a_refresh_period_without_watching_is_refused() -> None:
    code, _, err = run("status", "--every", "5")
    assert code == EXIT_REFUSED
    assert "it needs --watch" in err


def test_retention_without_a_limit_names_the_keys() -> None:
    code, _, err = run("records", "retain")
    assert code == EXIT_REFUSED
    assert "journal.keep_days" in err


@pytest.fixture
def full_home() -> None:
    """A journal with one version, and something where each command would write."""
    home = Path(os.environ["REJOINDER_HOME"])
    home.mkdir()
    with SqlJournal(f"sqlite:///{home / 'journal.db'}") as journal:
        journal.ensure_policy("default", "default", "file:///models/base", "base-hash")
    Path("used").mkdir()
    Path("used/file").write_text("of somebody")


@pytest.mark.usefixtures("full_home")
@pytest.mark.parametrize(
    "command",
    [
        # They would write over something, or where nothing can be written.
        "policy export used",
        "policy export used/file",
        "records export used/file",
        "records export used",
        "eval personas --persona no-lists --output used/file",
        "demo --output used/file",
        # They name what is not there.
        "policy show 9",
        "policy list --policy other",
        "policy rollback 9 --yes",
        "policy export new --version 9",
        "explain turn unknown",
        "eval personas --persona unknown",
        "chat --url 127.0.0.1:1",
        # They are no such arguments, or lack one.
        "chat --url ftp://here",
        "records export new.jsonl --since yesterday",
        "records retain",
        "eval personas",
        "eval personas --persona no-lists --variant fast",
        "eval personas --persona no-lists --person-model m",
        "eval personas --persona no-lists --url nowhere --label x",
        "eval personas --persona no-lists --packed 2 --keep kept",
        "status --every 5",
        "policy show one",
        "unknown",
    ],
)
def test_what_its_arguments_do_not_allow_is_refused_with_one_code_by_every_command(
    command: str,
) -> None:
    """To write over something was code 2 of one command, and 78 of another."""
    code, _, err = run(*command.split())
    assert code == EXIT_REFUSED, err
    assert Path("used/file").read_text() == "of somebody"


@pytest.mark.parametrize(
    "command",
    ["up", "status", "policy list", "explain turn x", "records size", "doctor", "config check",
     "chat", "demo", "eval personas --persona no-lists", "gateway", "engine", "judge", "trainer"],
)  # fmt: skip
def test_a_fault_of_the_configuration_has_another_code_of_every_command(command: str) -> None:
    Path("rejoinder.toml").write_text("[gateway]\nprot = 1\n")
    assert run(*command.split())[0] == EXIT_CONFIG


@pytest.mark.usefixtures("full_home")
@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_ctrl_c_is_the_way_to_end_a_watch(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    """With ``--json`` it was an end before it was done, with a code of its own."""

    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rejoinder.cli.status.time.sleep", interrupt)
    code, out, err = run("status", "--watch", *arguments)
    assert (code, err) == (0, "")
    assert "nothing runs" in out


def test_advice_names_commands_with_the_options_that_were_given(tmp_path: Path) -> None:
    home = str(tmp_path / "my home")
    named = f"`rejoinder --home '{home}' "
    runner = CliRunner()
    told = " ".join(runner.invoke(app, ["--home", home, "status"]).stderr.split())
    assert f"{named}up`" in told
    with SqlJournal(f"sqlite:///{home}/journal.db") as journal:
        journal.report(RoleReport("gateway", "gateway-1", 1, "ready", seen_at=1.0))
    document = json.loads(runner.invoke(app, ["--home", home, "status", "--json"]).stdout)
    assert document["learning"] == {
        "word": "stopped",
        "reason": f"nothing runs: start it with {named}up`",
    }
    told = " ".join(runner.invoke(app, ["--home", home, "config", "check"]).stderr.split())
    assert f"{named}doctor`" in told
    checks = json.loads(runner.invoke(app, ["--home", home, "doctor", "--json"]).stdout)["checks"]
    assert any(f"{named}up`" in check["remedy"] for check in checks)
    plain = runner.invoke(app, ["status"], env={"REJOINDER_HOME": home})
    assert "`rejoinder up`" in " ".join(plain.stdout.split())
