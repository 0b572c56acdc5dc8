"""The installed command as a person types it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from running import COMMAND, environment, rejoinder, wait_until

from rejoinder.errors import EXIT_CONFIG, EXIT_REFUSED

pytestmark = pytest.mark.e2e

SCRIPT = Path(sys.executable).parent / "rejoinder"


def test_the_installed_script_is_the_same_program(tmp_path: Path) -> None:
    said = subprocess.run([SCRIPT, "--version"], capture_output=True, text=True, check=True).stdout
    assert said == rejoinder(tmp_path, "--version").stdout


def test_the_installed_script_finds_the_users_judge_where_it_is_started(tmp_path: Path) -> None:
    (tmp_path / "my_own_judge.py").write_text("def score(*_):\n    return 1\n")
    good = '[judge]\nkind = "callable"\ntarget = "my_own_judge:score"\n'
    # `up` is stopped by another fault, after all of them were looked for.
    for command, config in (
        (("config", "check"), good),
        (("up",), good + "[trainer.lora]\ntargets = []\n"),
    ):
        (tmp_path / "rejoinder.toml").write_text(config)
        done = subprocess.run(
            [SCRIPT, *command],
            cwd=tmp_path,
            env=environment(tmp_path),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert "my_own_judge" not in done.stderr
        assert (done.returncode == 0) == (config == good), done.stderr
        assert ("trainer.lora.targets" in done.stderr) == (config != good)


def test_a_configuration_that_cannot_learn_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "rejoinder.toml").write_text('[engine]\nkind = "scripted"\n')
    done = rejoinder(tmp_path, "up")
    assert done.returncode == EXIT_CONFIG
    assert "engine.kind = 'scripted'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("taken", ["gateway", "engine"])
def test_a_taken_port_is_one_line_before_anything_starts(tmp_path: Path, taken: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        other_section = "engine" if taken == "gateway" else "gateway"
        (tmp_path / "rejoinder.toml").write_text(
            f"[{taken}]\nport = {port}\n[{other_section}]\nport = 0\n"
        )
        done = rejoinder(tmp_path, "up")
    assert done.returncode == EXIT_REFUSED
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert f"port {port} on 127.0.0.1 is taken" in line
    assert f"set {taken}.port to a free port" in line
    assert not (tmp_path / "journal.db").exists()


@pytest.mark.parametrize("role", ["gateway", "engine"])
def test_a_single_role_binds_its_port_first_too(tmp_path: Path, role: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        (tmp_path / "rejoinder.toml").write_text(f"[{role}]\nport = {other.getsockname()[1]}\n")
        done = rejoinder(tmp_path, role)
    assert done.returncode == EXIT_REFUSED
    assert f"set {role}.port to a free port" in done.stderr


def test_the_gateway_does_not_face_strangers_without_keys(tmp_path: Path) -> None:
    (tmp_path / "rejoinder.toml").write_text('[gateway]\nhost = "0.0.0.0"\nport = 0\n')
    for command in ("up", "gateway"):
        done = rejoinder(tmp_path, command)
        assert done.returncode == EXIT_CONFIG
        assert "REJOINDER_API_KEYS" in done.stderr


def test_output_can_be_cut_off_by_its_reader(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "rejoinder", "config", "show"],
            cwd=tmp_path,
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert "Traceback" not in done.stderr


@pytest.mark.model
def test_a_demonstration_that_is_told_to_end_leaves_nothing_behind(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    demo = subprocess.Popen(
        [*COMMAND, "demo"],
        cwd=tmp_path,
        env=environment(tmp_path) | {"TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        children = psutil.Process(demo.pid).children
        wait_until(lambda: len(children()) >= 4, 60.0, lambda: "the roles were not started")
        roles = children()
        demo.send_signal(signal.SIGTERM)
        demo.communicate(timeout=60)
    finally:
        demo.kill()
    assert demo.returncode == 128 + signal.SIGTERM
    assert psutil.wait_procs(roles, timeout=10)[1] == []
    assert list(temporary.iterdir()) == []
