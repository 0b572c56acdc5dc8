"""Schemathesis reads the API's own description and tries what it allows, and what it does not.

The package comes with the extra ``fuzz`` (``make fuzz``); without it there is nothing to run.
"""

from __future__ import annotations

import asyncio
import importlib.util
import sys

import pytest
from gateway_kit import KEYS, running
from storm import leftovers

ARGUMENTS = ("--checks", "not_a_server_error", "--seed", "1", "--no-color", "--workers", "2")


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("schemathesis"), reason="needs the extra fuzz")
async def test_the_described_api_never_fails(tiny_tokenizer, journal_url):
    async with running(tiny_tokenizer, journal_url, keys=KEYS) as g:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "schemathesis.cli", "run", f"{g.base_url}/openapi.json", *ARGUMENTS),
            *("--header", "Authorization: Bearer sk-alice-1", "--max-examples", "300"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        assert process.returncode == 0, said.decode()[-8000:]
        await g.eventually(lambda: not leftovers(g))
