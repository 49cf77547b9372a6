"""`make audit`: known vulnerabilities of what is installed, where the service answers.

Exits with 1 where there are some; where nobody answers, it says that nothing is known.
"""

import json
import subprocess
import sys


def main() -> int:
    command = [sys.executable, "-m", "pip_audit", "--local", "--progress-spinner=off"]
    command += ["--skip-editable", "--timeout=10", "--format=json"]
    said = ""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        said = done.stderr.strip().rpartition("\n")[2]
        found = json.loads(done.stdout)["dependencies"]
    except (subprocess.TimeoutExpired, ValueError, KeyError) as error:
        print(f"not audited, no answer from the service: {said or type(error).__name__}")
        return 0
    bad = [package for package in found if package.get("vulns")]
    for package in bad:
        ids = ", ".join(vulnerability["id"] for vulnerability in package["vulns"])
        print(f"{package['name']} {package.get('version')}: {ids}")
    print(f"{len(found)} packages audited, {len(bad)} with known vulnerabilities")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
