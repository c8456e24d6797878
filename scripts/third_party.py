#!/usr/bin/env python3
"""Writes what a release says of other people's code in it: THIRD-PARTY-NOTICES and an SPDX SBOM.

    third_party.py TARGET NOTICES SBOM [NAME=VERSION=LICENCE=FILE ...]

Everything comes from `cargo metadata` of the folder that it is called in: the packages that are
linked into the module, without those of build scripts, macros and tests. What else is in the module
is named by the last arguments, each with the file of its licence. SOURCE_DATE_EPOCH is the time in
the SBOM, so that the same sources give the same bytes.
"""

import json
import os
import re
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

LICENCE_FILE = re.compile(r"licen[cs]es?|copying|copyright|notice|unlicense", re.IGNORECASE)


def linked_packages(target):
    """The module's package, and those that are linked into it, by name."""
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target]
    metadata = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    root = metadata["resolve"]["root"]
    found, waiting = {}, [root]
    while waiting:
        at = waiting.pop()
        if at in found:
            continue
        found[at] = packages[at]
        for dependency in nodes[at]["deps"]:
            is_linked = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            kinds = {kind for to in packages[dependency["pkg"]]["targets"] for kind in to["kind"]}
            if is_linked and "proc-macro" not in kinds:
                waiting.append(dependency["pkg"])
    module = found.pop(root)
    return module, sorted(found.values(), key=lambda package: (package["name"], package["version"]))


def licence_of(package):
    """The SPDX expression. Some packages still separate a choice by a slash."""
    return (package["license"] or "NOASSERTION").replace("/", " OR ")


def licence_texts(package):
    """The texts of a package's licences, by file name."""
    folder = Path(package["manifest_path"]).parent
    files = []
    for entry in sorted(folder.iterdir()):
        if LICENCE_FILE.match(entry.name):
            files += sorted(entry.rglob("*")) if entry.is_dir() else [entry]
    return {file.name: file.read_text("utf-8", "replace").strip() for file in files if file.is_file()}


def checksums():
    """The SHA-256 sums of the packages, from Cargo.lock."""
    blocks = Path("Cargo.lock").read_text().split("[[package]]")
    fields = [dict(re.findall(r'^(\w+) = "(.*)"$', block, re.MULTILINE)) for block in blocks]
    return {(it["name"], it["version"]): it["checksum"] for it in fields if "checksum" in it}


def write_notices(path, module, packages, others):
    rule = "-" * 78
    parts = [
        f"{module['name']} {module['version']} contains code of others. Their names, licences and "
        f"notices follow. A text that is there already is named by its first package.\n"
    ]
    first_with = {}
    for package in packages:
        by = ", ".join(package["authors"])
        texts = licence_texts(package)
        if not texts:
            sys.exit(f"{package['name']} {package['version']} has no file with its licence")
        head = [f"{package['name']} {package['version']}", f"Licence: {licence_of(package)}"]
        head += [f"Authors: {by}"] if by else []
        head += [package["repository"]] if package["repository"] else []
        parts.append("\n".join([rule, *head, rule]))
        for file, text in texts.items():
            if text in first_with:
                parts.append(f"{file}: that of {first_with[text]}\n")
            else:
                first_with[text] = head[0]
                parts.append(f"{file}:\n\n{text}\n")
    for name, version, licence, file in others:
        parts.append("\n".join([rule, f"{name} {version}", f"Licence: {licence}", rule]))
        parts.append(Path(file).read_text("utf-8", "replace").strip() + "\n")
    Path(path).write_text("\n".join(parts))


def spdx_id(name, version):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", f"{name}-{version}")


def entry(name, version, licence, **more):
    return {
        "SPDXID": spdx_id(name, version),
        "name": name,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": licence,
        "licenseDeclared": licence,
        "copyrightText": "NOASSERTION",
        **more,
    }


def package_entry(package, sums):
    name, version = package["name"], package["version"]
    more = {}
    if (name, version) in sums:
        more["checksums"] = [{"algorithm": "SHA256", "checksumValue": sums[name, version]}]
        more["externalRefs"] = [{
            "referenceCategory": "PACKAGE-MANAGER",
            "referenceType": "purl",
            "referenceLocator": f"pkg:cargo/{name}@{version}",
        }]
    return entry(name, version, licence_of(package), **more)


def write_sbom(path, target, module, packages, others):
    sums = checksums()
    name = f"{module['name']}-{module['version']}-{target}"
    when = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), timezone.utc)
    entries = [package_entry(package, sums) for package in [module, *packages]]
    entries += [entry(name, version, licence) for name, version, licence, _ in others]
    root = entries[0]["SPDXID"]
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", root)]
    relations += [(root, "CONTAINS", it["SPDXID"]) for it in entries[1:]]
    keys = ("spdxElementId", "relationshipType", "relatedSpdxElement")
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": name,
        "documentNamespace": f"https://spdx.org/spdxdocs/{name}-{int(when.timestamp())}",
        "creationInfo": {
            "created": when.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": ["Tool: midi scripts/third_party.py"],
        },
        "packages": entries,
        "relationships": [dict(zip(keys, relation)) for relation in relations],
    }
    Path(path).write_text(json.dumps(document, indent=2) + "\n")


def main():
    target, notices, sbom, *rest = sys.argv[1:]
    others = [tuple(other.split("=", 3)) for other in rest]
    module, packages = linked_packages(target)
    write_notices(notices, module, packages, others)
    write_sbom(sbom, target, module, packages, others)


main()
