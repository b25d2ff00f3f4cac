"""The Python of a page: runs blocks from standard input in one namespace on one loop, and answers each with its error or ""."""

import ast
import asyncio
import inspect
import json
import sys
import traceback
from pathlib import Path
from typing import Any

import duly


def main() -> None:
    """Run blocks until there are no more; the names of app.py are known as soon as there is one."""
    answers, sys.stdout = sys.stdout, sys.stderr
    names: dict[str, Any] = {"__name__": "page", "asyncio": asyncio, "duly": duly}
    names |= {name: getattr(duly, name) for name in duly.__all__}
    sys.path.insert(0, "")
    with asyncio.Runner() as runner:
        for line in sys.stdin:
            text, where = json.loads(line)
            error = ""
            try:
                if Path("app.py").exists():
                    names = {**vars(__import__("app")), **names}
                elif "app" not in names:
                    names["app"] = duly.App()
                code = compile(text, where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
                runner.run(_run(code, names))
            except BaseException:  # The page's, whatever it is.
                error = traceback.format_exc()
            print(json.dumps(error), file=answers, flush=True)


async def _run(code: Any, names: dict[str, Any]) -> None:
    done = eval(code, names)
    if inspect.isawaitable(done):
        await done


if __name__ == "__main__":
    main()
