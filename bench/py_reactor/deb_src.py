"""The deb-src twins of this machine's apt entries for Debian, for a private apt.

    deb_src.py RELEASE FOLDER

writes FOLDER/debian.list and FOLDER/debian.sources. Entries of other archives are left
out: they seldom have sources, and apt would complain of one that doesn't answer.
"""
import pathlib
import re
import sys

APT = pathlib.Path("/etc/apt")


def is_debian(suites, components, release):
    wanted = {release, release + "-updates", release + "-security", release + "/updates"}
    return "main" in components and bool(wanted & set(suites))


def from_lines(text, release):
    """One-line entries: deb [options] uri suite components."""
    for line in text.splitlines():
        entry = re.match(r"deb\s+(?:\[[^\]]*\]\s+)?\S+\s+(\S+)\s+(.*)", line)
        if entry and is_debian([entry[1]], entry[2].split(), release):
            yield "deb-src" + line[len("deb"):]


def from_stanzas(text, release):
    """Stanzas of fields; a field goes on in indented lines."""
    for stanza in re.split(r"\n\s*\n", text):
        lines = [line for line in stanza.splitlines() if not line.startswith("#")]
        fields = dict(re.findall(r"^([\w-]+):(.*(?:\n[ \t].*)*)", "\n".join(lines), re.M))
        fields = {name.lower(): value.strip() for name, value in fields.items()}
        on = fields.get("enabled", "yes").lower() in ("yes", "true", "1")
        suites, components = fields.get("suites", "").split(), fields.get("components", "").split()
        if on and is_debian(suites, components, release):
            fields["types"] = "deb-src"
            yield "".join(f"{name.title()}: {value}\n" for name, value in fields.items())


def main(release, folder):
    lists = [APT / "sources.list", *sorted(APT.glob("sources.list.d/*.list"))]
    lines = [line for path in lists if path.is_file() for line in from_lines(path.read_text(), release)]
    stanzas = [stanza for path in sorted(APT.glob("sources.list.d/*.sources"))
               for stanza in from_stanzas(path.read_text(), release)]
    pathlib.Path(folder, "debian.list").write_text("\n".join(lines) + "\n")
    pathlib.Path(folder, "debian.sources").write_text("\n".join(stanzas))


main(*sys.argv[1:])
