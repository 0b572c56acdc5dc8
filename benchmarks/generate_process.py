"""``generate`` of transformers in a process of its own: what the engine is measured against.

Engine and trainer let idle threads sleep (``models/cores.py``), which costs speed on an idle
machine. The baseline must not pay for that, and these settings cannot differ within a process: so
it gets its own, with whatever environment it is given.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

OMP_SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS")


class GenerateProcess:
    """Loads the model once, on entering; ends its process on leaving.

    Args:
        model: directory of the model.
        device: that PyTorch computes on.
        dtype: of the weights, as ``ModelConfig.dtype`` names it.
        environment: of the process.
    """

    def __init__(
        self, model: Path, device: str, dtype: str, environment: Mapping[str, str]
    ) -> None:
        self._command = [sys.executable, __file__, str(model), device, dtype]
        self._environment = dict(environment)
        self._process: subprocess.Popen[str] | None = None
        self.settings: dict[str, Any] = {}
        """Threads and OMP variables of the process, as it sees them."""

    def __enter__(self) -> GenerateProcess:
        self._process = subprocess.Popen(
            self._command,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.settings = self._receive()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        self._process.kill()  # it holds nothing that must be kept
        self._process.communicate()

    def run(self, prompts: Sequence[Sequence[int]], tokens: int) -> float:
        """Return the seconds for one batch of prompts of the same length."""
        assert self._process is not None
        assert self._process.stdin is not None
        print(json.dumps([prompts, tokens]), file=self._process.stdin)
        return float(self._receive()["seconds"])

    def _receive(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the process of the baseline ended; its error stands above")
        found: dict[str, Any] = json.loads(line)
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("device")
    parser.add_argument("dtype")
    arguments = parser.parse_args()
    # Whatever a library prints must not end up between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    import torch
    from transformers import GenerationConfig

    from rejoinder.config import ModelConfig
    from rejoinder.models.loading import load_model, pick_device, pick_dtype

    config = ModelConfig(device=arguments.device, dtype=arguments.dtype)
    device = pick_device(config)
    model = load_model(arguments.model, pick_dtype(config, device), device)
    told = {name: os.environ.get(name) for name in OMP_SETTINGS}
    print(json.dumps({"threads": torch.get_num_threads(), **told}), file=answers)
    for line in sys.stdin:
        prompts, tokens = json.loads(line)
        ids = torch.tensor(prompts, device=device)
        settings = GenerationConfig(
            max_new_tokens=tokens, do_sample=True, top_k=0, eos_token_id=None, pad_token_id=0
        )
        mask = torch.ones_like(ids)
        begin = time.perf_counter()
        with torch.inference_mode():
            out = model.generate(ids, attention_mask=mask, generation_config=settings)
        seconds = time.perf_counter() - begin
        assert out.shape[1] == ids.shape[1] + tokens
        print(json.dumps({"seconds": seconds}), file=answers)


if __name__ == "__main__":
    main()
