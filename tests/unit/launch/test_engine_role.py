"""What an engine serves whose live version is damaged on disk, and what it says of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from gateway_kit import running, user
from journal_story import Story
from transformers import AutoModelForCausalLM

from engine_in_thread import EngineInThread
from rejoinder.cli.advice import next_steps
from rejoinder.config import Config
from rejoinder.engine import follow
from rejoinder.engine.client import HttpEngine
from rejoinder.journal.columns import decode_versions
from rejoinder.journal.sql import SqlJournal
from rejoinder.launch import engine_role
from rejoinder.models.tokenizer import ModelTokenizer
from rejoinder.types import Json, VersionRun
from tiny_model import POLICY, answer, reference_logprobs, request, save_tiny_model

PROMPT = list(range(40, 60))


class Registry(Story):
    """A home of tiny models: 2 comes from 1; 3 was left by a rollback to 2; 4 and 5 come after."""

    def __init__(self, home: Path, tokenizer: ModelTokenizer) -> None:
        self.home, self.tokenizer = home, tokenizer
        self.url = f"sqlite:///{home / 'journal.db'}"
        self.journal = SqlJournal(self.url)
        self.save(0)
        self.journal.ensure_policy(POLICY, "default", str(self.path(0)), "base-hash")
        for _ in range(3):
            self.add()
        self.journal.rollback(POLICY, 2, replay=False)
        for _ in range(2):
            self.add()

    def path(self, version: int) -> Path:
        return self.home / f"v{version}"

    def save(self, version: int, **settings: object) -> None:
        shutil.rmtree(self.path(version), ignore_errors=True)
        save_tiny_model(self.path(version), self.tokenizer, seed=version, **settings)  # type: ignore[arg-type]

    def add(self) -> None:
        version = self.lineage().next_version
        self.save(version)
        self.commit([], uri=str(self.path(version)), base_uri=str(self.path(0)))

    def advice(self) -> str:
        document: Json = self.journal.status(POLICY, 4)
        return "\n".join(next_steps(document))

    def engine_says(self) -> Json:
        document: Json = self.journal.status(POLICY, 4)
        found: Json = next(one for one in document["roles"] if one["role"] == "engine")["detail"]
        return found


@pytest.fixture
def registry(tmp_path: Path, tiny_tokenizer: ModelTokenizer) -> Iterator[Registry]:
    made = Registry(tmp_path, tiny_tokenizer)
    with made.journal:
        yield made


@pytest.fixture
def engine(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable]:
    """Starts the role."""
    started: list[EngineInThread] = []
    settings = {"kind": "torch", "max_running": 2, "cache_slots": 2, "threads": 1, "poll_s": 0.01}
    config = Config.model_validate(
        {
            "model": {"path": str(registry.path(0)), "device": "cpu"},
            "engine": settings,
            "journal": {"url": registry.url},
        }
    )
    monkeypatch.setattr(engine_role.signal, "signal", lambda *_: None)
    monkeypatch.setattr(engine_role, "REPORT_S", 0.05)
    monkeypatch.setattr(follow, "_LONGEST_WAIT_S", 0.2)

    def start() -> EngineInThread:
        made = EngineInThread(monkeypatch, lambda sock: engine_role.run_engine(config, sock))
        started.append(made)
        return made

    yield start
    for one in started:
        assert one.end() is None


def cut(registry: Registry, version: int) -> None:
    """As a disk does that was full, or a copy that broke off."""
    file = registry.path(version) / "model.safetensors"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def overwritten(registry: Registry, version: int) -> None:
    (registry.path(version) / "model.safetensors").write_bytes(b"no weights" * 100)


def missing(registry: Registry, version: int) -> None:
    shutil.rmtree(registry.path(version))


def of_other_layers(registry: Registry, version: int) -> None:
    registry.save(version, num_hidden_layers=2)


def of_other_shapes(registry: Registry, version: int) -> None:
    """The configuration says other sizes than the weights have."""
    settings = (registry.path(version) / "config.json").read_bytes()
    registry.save(version, hidden_size=96)
    (registry.path(version) / "config.json").write_bytes(settings)


def not_finite(registry: Registry, version: int) -> None:
    path = registry.path(version)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    torch.nn.init.constant_(model.model.norm.weight, float("nan"))
    model.save_pretrained(path)


def ready(started: EngineInThread) -> HttpEngine:
    """Wait until the engine serves."""
    started.until(lambda: bool(started.servers) and started.servers[0]._holder.engine is not None)
    return HttpEngine(started.url)


@pytest.mark.parametrize(
    "damage", [cut, overwritten, missing, of_other_layers, of_other_shapes, not_finite]
)
async def test_a_start_serves_the_newest_version_behind_the_live_one_that_loads(
    registry: Registry, engine: Callable, damage: Callable[[Registry, int], None]
) -> None:
    """It served the start weights, and only its last error said so."""
    damage(registry, 5)
    cut(registry, 4)
    client = ready(engine())
    assert (await client.info()).live == {POLICY: 2}, "not 3: a rollback has left it"
    found = await answer(client, request(PROMPT, max_tokens=12))
    assert found.versions == [2] * len(found.ids)
    model = AutoModelForCausalLM.from_pretrained(registry.path(2), dtype=torch.float32)
    expected = reference_logprobs(model, [*PROMPT, *found.ids], len(PROMPT))
    assert found.logprobs == pytest.approx(expected.tolist(), abs=1e-3)
    async with running(registry.tokenizer, registry.url, served_by=client) as g:
        await g.answer(user("Hi"), max_tokens=5, logit_bias={"258": -100})
        (row,) = g.rows("SELECT versions FROM answers")
        assert decode_versions(row["versions"]) == (VersionRun(2, 5),)
    assert registry.journal.live_versions()[0].version == 5, "what is live is not the engine's word"
    await client.close()


async def test_status_says_what_serves_instead_and_what_to_do(
    registry: Registry, engine: Callable
) -> None:
    cut(registry, 5)
    of_other_layers(registry, 4)
    started = engine()
    client = ready(started)
    started.until(lambda: "cannot load version 5 and serves version 2" in registry.advice())
    assert "restore " + str(registry.path(5)) in registry.advice()
    assert "`rejoinder policy rollback 2`" in registry.advice()
    assert registry.engine_says()["not_taken_up"][POLICY]["version"] == 5
    registry.journal.rollback(POLICY, 2, replay=False)
    started.until(lambda: "cannot load" not in registry.advice())
    assert (await client.info()).live == {POLICY: 2}
    await client.close()


async def test_a_version_that_is_restored_or_made_next_is_taken_up(
    registry: Registry, engine: Callable
) -> None:
    missing(registry, 5)
    started = engine()
    client = ready(started)
    assert (await client.info()).live == {POLICY: 4}
    registry.save(5)
    started.until(lambda: registry.engine_says().get("live") == {POLICY: 5})
    assert registry.engine_says()["not_taken_up"] == {}
    cut(registry, 5)
    registry.add()
    started.until(lambda: registry.engine_says()["live"] == {POLICY: 6})
    await client.close()


async def test_where_no_version_loads_the_start_weights_serve(
    registry: Registry, engine: Callable
) -> None:
    for version in (1, 2, 4, 5):
        cut(registry, version)
    started = engine()
    client = ready(started)
    assert (await client.info()).live == {POLICY: 0}
    started.until(lambda: "`rejoinder policy rollback 0`" in registry.advice())
    await client.close()
