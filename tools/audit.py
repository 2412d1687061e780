"""The look-up of every installed package in a list of published vulnerabilities.

pip-audit queries a service for each package of this environment, and reports no problem for a package that the service
does not know, or for all if a mirror replaces the service. Here only packages that the service knows count as audited.
"""

# ruff: noqa: S603, T201 (running a program and printing its result is the purpose)

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from tools.machine import pip_settings

SERVICES = {"pypi": "PyPI", "osv": "OSV"}
SECONDS = 120.0
OWN = "rtvi-sync"  # in the environment after `run.py demo`, and no dependency


def query(service: str) -> list[dict[str, Any]] | str:
    """Return pip-audit's findings for each package from a service; or, if there are none at all, the reason."""
    settings = pip_settings()
    environ = dict(os.environ)
    # The package index's own authority and proxy are needed here, too.
    for name, setting in (("REQUESTS_CA_BUNDLE", "cert"), ("HTTPS_PROXY", "proxy")):
        if settings.get(setting):
            environ.setdefault(name, settings[setting])
    command = [sys.executable, "-m", "pip_audit", "--vulnerability-service", service, "--format", "json"]
    try:
        done = subprocess.run(
            [*command, "--progress-spinner", "off"], env=environ, capture_output=True, text=True, timeout=SECONDS
        )
        packages: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except subprocess.TimeoutExpired:
        return f"no answer within {SECONDS:g} s"
    except (ValueError, LookupError, TypeError):
        return (done.stderr.strip().splitlines() or ["no answer"])[-1][:100]
    return packages if any("vulns" in package for package in packages) else "it knows none of the installed packages"


def report(packages: list[dict[str, Any]]) -> tuple[list[str], int]:
    """Return the lines about the packages, and the status: 1 with a vulnerability, 2 with packages not audited."""
    audited = [package for package in packages if "vulns" in package]
    unknown = [package["name"] for package in packages if "vulns" not in package]
    skipped = [name for name in unknown if name.replace("_", "-") != OWN]
    lines = [
        f"{package['name']} {package['version']}: {vulnerability['id']}, "
        f"fixed in {', '.join(vulnerability['fix_versions']) or 'no version yet'}"
        for package in audited
        for vulnerability in package["vulns"]
    ]
    found = len(lines)
    lines.append(f"{len(audited)} packages audited, {found or 'no'} known vulnerabilities")
    if skipped:
        lines.append(f"NOT AUDITED, the service does not know: {', '.join(skipped)}")
    return lines, 1 if found else 2 if skipped else 0


def main(arguments: list[str]) -> int:
    """Audit, and return the exit status. With --require, packages that were not audited are a failure."""
    reasons = []
    for service, name in SERVICES.items():
        packages = query(service)
        if not isinstance(packages, str):
            lines, status = report(packages)
            break
        reasons.append(f"{name}: {packages}")
    else:
        lines, status = [f"NOT AUDITED, no list of vulnerabilities can be reached from here ({'; '.join(reasons)})"], 2
    for line in lines:
        print(f"pip-audit: {line}")
    return int(status == 1 or (status == 2 and "--require" in arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
