"""What a gateway process loads."""

from __future__ import annotations

import subprocess
import sys


def test_the_gateway_imports_neither_torch_nor_transformers():
    code = (
        "import sys, rejoinder.gateway.server, rejoinder.gateway.workers\n"
        "print({m.split('.')[0] for m in sys.modules} & {'torch', 'transformers', 'peft'})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_gateway_may_open_as_many_files_as_it_has_connections():
    code = (
        "import resource as r\n"
        "from rejoinder.gateway.server import allow_files\n"
        "_, hard = r.getrlimit(r.RLIMIT_NOFILE)\n"
        "r.setrlimit(r.RLIMIT_NOFILE, (64, hard))\n"
        "allow_files(200); print(r.getrlimit(r.RLIMIT_NOFILE)[0])\n"
        "allow_files(100); print(r.getrlimit(r.RLIMIT_NOFILE)[0])\n"
        "r.setrlimit(r.RLIMIT_NOFILE, (64, 150))\n"
        "allow_files(200); print(r.getrlimit(r.RLIMIT_NOFILE)[0])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    said = [line for line in done.stdout.splitlines() if line.isdigit()]
    assert said == ["200", "200", "150"]
    assert "fewer open files" in done.stdout
