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
