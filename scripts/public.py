"""Lists what is public, from the pages that rustdoc made, and compares the list with a file: see `public`."""

import difflib
import html
import re
import sys
from pathlib import Path

# What follows these on a page is not of the item itself: what others implement, and what holds of all types.
ENDS = ('id="foreign-impls"', 'id="implementors"', 'id="blanket-implementations"')
AUTOMATIC = 'id="synthetic-implementations"'
IMPLEMENTED = 'id="trait-implementations"'
# Methods of the type to which this one dereferences: they are on its own page.
DEREFERENCED = 'id="deref-methods-'
# Of another crate.
FOREIGN = ("struct.f16", "struct.bf16")
DECLARATION = re.compile(r'<pre class="rust item-decl"><code>(.*?)</code></pre>', re.DOTALL)
# The declaration of a member stands in a header behind its name.
MEMBER = re.compile(
    r'id="((?:impl|tymethod|method|associatedtype|associatedconstant)[.-][^"]*)"[^>]*>(?:(?!<h[34]).)*?<h[34] class="code-header">(.*?)</h[34]>',
    re.DOTALL,
)
REEXPORT = re.compile(r'id="reexport\.[^"]*"[^>]*>.*?<code>(.*?)</code>', re.DOTALL)


def text(page):
    """What a reader sees of a piece of a page, on one line."""
    page = re.sub(r'<details[^>]*>.*?</summary>|</details>|<span class="since[^>]*>.*?</span>|<a [^>]*class="(?:src|anchor|tooltip)[^>]*>.*?</a>', "", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", page)).replace("\u200b", "").split())


def lines(path, page):
    """What a page says is public: where an item can be named, and what it is, once for all places."""
    if path.name == "all.html" or 'http-equiv="refresh"' in page:
        return
    if path.name == "index.html":
        for item in REEXPORT.findall(page):
            yield f"{path.parent}: {text(item)}"
        return
    for end in ENDS:
        page = page.split(end)[0]
    page, _, automatic = page.partition(AUTOMATIC)
    page, _, implemented = page.partition(IMPLEMENTED)
    page = page.split(DEREFERENCED)[0]
    name = path.stem
    yield f"{path.parent}: {name}"
    if name in FOREIGN:
        return
    declaration = DECLARATION.search(page)
    yield f"{name}: {text(declaration.group(1)) if declaration else 'no declaration'}"
    for _, header in MEMBER.findall(page):
        yield f"{name}: {text(header)}"
    # Of traits that are implemented: which, not how.
    for member, header in MEMBER.findall(implemented):
        if member.startswith("impl-"):
            yield f"{name}: {text(header)}"
    for _, header in MEMBER.findall(automatic):
        if re.search(r"\b(Send|Sync)\b", header):
            yield f"{name}: {text(header)}"


def main():
    folder, file = Path(sys.argv[1]), Path(sys.argv[2])
    found = sorted({line for path in folder.rglob("*.html") for line in lines(path.relative_to(folder), path.read_text())})
    if len(found) < 1000:
        sys.exit(f"only {len(found)} public items in {folder}: rustdoc writes its pages in another way")
    if sys.argv[3:] == ["--write"]:
        file.write_text("\n".join(found) + "\n")
        return
    wanted = file.read_text().splitlines()
    changes = list(difflib.unified_diff(wanted, found, str(file), "now", lineterm="", n=0))
    if changes:
        print("\n".join(changes))
        sys.exit("what is public has changed: if that is meant, `scripts/public --write`, and a line in CHANGELOG.md")
    print(f"{len(found)} public items, as in {file}")


main()
