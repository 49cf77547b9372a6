"""`make audit`: known vulnerabilities of installed packages, if the service can be reached.

Exits with 1 if there are some; if the service cannot be reached, it says so.
"""

import json
import re
import subprocess
import sys


def main() -> int:
    command = [sys.executable, "-m", "pip_audit", "--local", "--progress-spinner=off"]
    command += ["--skip-editable", "--timeout=10", "--format=json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        print("not audited: no answer from the service within two minutes")
        return 0
    if not done.stdout:
        said = done.stderr.strip().rpartition("\n")[2]
        print(f"not audited: {said}")
        return 0 if re.search(r"[Cc]onnect|[Tt]imed? ?out|[Ss]ervice|HTTP", done.stderr) else 2
    packages = json.loads(done.stdout)["dependencies"]
    found = [each for each in packages if "vulns" in each]
    if not found:
        print(f"not audited: {packages[0]['skip_reason'] if packages else 'nothing is installed'}")
        return 0
    bad = [package for package in found if package["vulns"]]
    for package in bad:
        ids = ", ".join(vulnerability["id"] for vulnerability in package["vulns"])
        print(f"{package['name']} {package.get('version')}: {ids}")
    skipped = len(packages) - len(found)
    print(f"{len(found)} audited, {len(bad)} with known vulnerabilities, {skipped} not known there")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
