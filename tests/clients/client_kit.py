"""A real gateway and engine as processes of their own, and the clients that talk to them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from tokenizers import AddedToken, Tokenizer

from rejoinder.journal.columns import decode_ids, decode_json
from rejoinder.journal.payloads import read_messages
from rejoinder.models.embedded import resolve_model
from rejoinder.models.tokenizer import ModelTokenizer, load_tokenizer
from rejoinder.types import Message

Json = dict[str, Any]

HERE = Path(__file__).parent
CLIENTS = Path(os.environ.get("REJOINDER_TEST_CLIENTS", HERE.parents[1] / ".clients"))
"""Where ``make test-clients`` installs the clients."""
PYTHON = CLIENTS / "python" / "bin"
NODE = CLIENTS / "node24" / "node_modules" / "node" / "bin" / "node"
NODE_MODULES = CLIENTS / "node" / "node_modules"
READY_S = 90.0
LONG_CONTEXT = 200_000
MARKERS = ("<tool_call>", "</tool_call>", "<think>", "</think>")
CONFIG = """
home = "{home}"
log_level = "warning"
[model]
path = "{model}"
[gateway]
port = {port}
[engine]
kind = "torch"
port = {engine_port}
threads = 1
[judge]
kind = "likelihood"
"""


def make_long_context_model(directory: Path) -> Path:
    """Write a model of the family of Qwen3: real merges, a template with tools, no real weights."""
    import torch
    from safetensors.torch import save_file

    source = resolve_model("embedded")
    tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))
    tokenizer.add_tokens([AddedToken(name, special=False) for name in MARKERS])
    tokenizer.save(str(directory / "tokenizer.json"))
    for name in ("tokenizer_config.json", "generation_config.json"):
        (directory / name).write_bytes((source / name).read_bytes())
    config = json.loads((source / "config.json").read_text())
    config["max_position_embeddings"] = LONG_CONTEXT
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "chat_template.jinja").write_text((HERE / "template.jinja").read_text())
    save_file({"none": torch.zeros(1)}, directory / "model.safetensors")
    return directory


@dataclass(frozen=True)
class Sampled:
    """One answer as the engine wrote it down."""

    turn_id: str
    prompt_ids: list[int]
    ids: list[int]
    temperature: float


@dataclass(frozen=True)
class Turn:
    """One answer as the journal has it."""

    turn_id: str
    session_id: str
    external: str | None
    parent_id: str | None
    turn_type: str
    ids: list[int]
    answer: Message
    next_state: tuple[Message, ...]
    link: Json


@dataclass
class System:
    """A gateway and its engine; ``close`` ends them as Ctrl-C would."""

    home: Path
    model: str
    script: list[Json] | None = None
    """What the engine replays; None: the model itself answers."""
    gateway_settings: str = ""
    port: int = 0
    engine_port: int = 0
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> System:
        self.port, self.engine_port = free_port(), free_port()
        config = self.home / "rejoinder.toml"
        config.write_text(
            CONFIG.format(
                home=self.home, model=self.model, port=self.port, engine_port=self.engine_port
            )
            + self.gateway_settings
        )
        engine = [HERE / "recording_engine.py", config, self._record]
        if self.script is not None:
            script = self.home / "script.json"
            script.write_text(json.dumps(self.script))
            engine.append(script)
        try:
            self._run("engine", engine, f"http://127.0.0.1:{self.engine_port}/health")
            command = ["-m", "rejoinder", "--config", config, "gateway"]
            self._run("gateway", command, f"http://127.0.0.1:{self.port}/readyz")
        except BaseException:
            self.close()
            raise
        return self

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def _record(self) -> Path:
        return self.home / "sampled.jsonl"

    def sampled(self) -> list[Sampled]:
        """Return what the engine sampled, in order of its ends."""
        if not self._record.exists():
            return []
        rows = [json.loads(line) for line in self._record.read_text().splitlines()]
        return [Sampled(r["id"], r["prompt_ids"], r["ids"], r["temperature"]) for r in rows]

    def turns(self, after: int = 0) -> list[Turn]:
        """Return the journal's answered turns but the first ``after``, in order of arrival."""
        with self._journal() as connection:
            rows = connection.exec_driver_sql(_TURNS).mappings().all()[after:]
            return [_turn(connection, row) for row in rows]

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return rows of the journal."""
        with self._journal() as connection:
            return [tuple(row) for row in connection.exec_driver_sql(query)]

    def _journal(self) -> sa.Connection:
        return sa.create_engine(f"sqlite:///{self.home / 'journal.db'}").connect()

    def tokenizer(self) -> ModelTokenizer:
        return load_tokenizer(resolve_model(self.model))

    def close(self) -> None:
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
        for process in reversed(self._processes):
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
        self._processes.clear()

    def _run(self, name: str, command: Sequence[str | Path], probe: str) -> None:
        log = (self.home / f"{name}.log").open("wb")
        process = subprocess.Popen([sys.executable, *command], stdout=log, stderr=log)
        self._processes.append(process)
        deadline = time.monotonic() + READY_S
        while not answers(probe):
            story = (self.home / f"{name}.log").read_text()
            assert process.poll() is None, f"the {name} ended: {story}"
            assert time.monotonic() < deadline, f"the {name} did not get ready: {story}"
            time.sleep(0.1)


_TURNS = """
SELECT t.turn_id, t.session_id, s.external, t.parent_id, t.turn_type, a.answer_ids, a.message,
       p.link
FROM turns t JOIN answers a USING (turn_id) JOIN prompts p USING (turn_id)
JOIN sessions s ON s.session_id = t.session_id
WHERE a.message IS NOT NULL ORDER BY t.created_at, t.choice
"""
"""An answer whose client went away, such as a helper of an agent that has ended, has no message."""


def _turn(connection: sa.Connection, row: Any) -> Turn:
    (answer,) = read_messages(connection, row["message"])
    states = connection.execute(
        sa.text("SELECT messages FROM next_states WHERE turn_id = :id"), {"id": row["turn_id"]}
    ).scalars()
    state = next(iter(states), None)
    return Turn(
        turn_id=row["turn_id"],
        session_id=row["session_id"],
        external=row["external"],
        parent_id=row["parent_id"],
        turn_type=row["turn_type"],
        ids=decode_ids(row["answer_ids"]),
        answer=answer,
        next_state=() if state is None else read_messages(connection, state),
        link=decode_json(row["link"]),
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(url: str) -> bool:
    """Whether a GET is answered well."""
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except OSError:
        return False


def run_driver(command: Sequence[str | Path], task: Json, seconds: float = 120) -> list[Json]:
    """Let a client hold a conversation; returns the answers as the client showed them."""
    done = subprocess.run(
        [str(part) for part in command],
        input=json.dumps(task),
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        env=client_environment(),
        cwd=HERE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answers: list[Json] = json.loads(done.stdout.splitlines()[-1])
    return answers


def client_environment(**more: str) -> dict[str, str]:
    """Return an environment without keys, proxies or settings of the machine's user."""
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
    path = f"{NODE.parent}:{os.environ.get('PATH', '')}"
    fixed = {
        "PATH": path,
        "NODE_PATH": str(NODE_MODULES),
        "NO_COLOR": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it asks for prices on the network
    }
    return kept | fixed | more
