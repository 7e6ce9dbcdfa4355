"""samples.py TREE: the Python that README.md and the binding's README.md show runs, and replays what it recorded."""
import os
import sys

import torch

sys.path.insert(0, os.path.join(sys.argv[1], "tests", "docs"))
from reading import blocks, documents, read  # noqa: E402

found = 0
for path in documents(sys.argv[1]):
    for line, language, lines in blocks(read(sys.argv[1], path)):
        if language != "python" and not any(each.startswith("import berth_torch") for each in lines):
            continue
        given = {"model": torch.nn.Sequential(torch.nn.Linear(1000, 1000), torch.nn.ReLU(), torch.nn.Linear(1000, 9)).eval(), "x": torch.rand(1, 1000)}
        with torch.no_grad():
            exec(compile("\n".join(lines), f"{path}:{line}", "exec"), given)
        report = given["report"]
        if report["from_plan"] < 1 or report["by_fallback"]:
            sys.exit(f"{path}:{line}: the replay was not served from the plan: {report}")
        found += 1
if found < 2:
    sys.exit(f"only {found} samples: that cannot be all")
