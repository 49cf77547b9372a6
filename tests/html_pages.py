"""Parses a page into a tree of elements, for look-ups."""

import html.parser

VOID = ("meta", "link", "wbr", "br", "img", "input", "hr")


class Element:
    def __init__(self, tag, attributes, parent):
        self.tag, self.attributes, self.parent = tag, attributes, parent
        self.children = []

    @property
    def text(self):
        return "".join(c if isinstance(c, str) else c.text for c in self.children)

    def all(self, tag=None, **wanted):
        """Yields the elements inside; `class_` is one of the words of class."""
        for child in self.children:
            if isinstance(child, str):
                continue
            has = {**child.attributes, "class_": child.attributes.get("class", "").split()}
            if tag in (None, child.tag) and all(
                value in has["class_"] if key == "class_" else has.get(key) == value
                for key, value in wanted.items()
            ):
                yield child
            yield from child.all(tag, **wanted)

    def one(self, tag=None, **wanted):
        (found,) = self.all(tag, **wanted)
        return found

    def data(self, key):
        return self.attributes.get(f"data-{key}")


class Page(html.parser.HTMLParser):
    """Returns a tree of a page, which must close every element."""

    def __init__(self, text):
        super().__init__()
        self.root = self.at = Element("", {}, None)
        self.feed(text)
        self.close()
        assert self.at is self.root, f"<{self.at.tag}> is not closed"

    def handle_starttag(self, tag, attributes):
        names = [name for name, _ in attributes]
        assert len(names) == len(set(names)), f"an attribute of <{tag}> twice: {names}"
        child = Element(tag, dict(attributes), self.at)
        self.at.children.append(child)
        if tag not in VOID:
            self.at = child

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert tag == self.at.tag, f"</{tag}> closes <{self.at.tag}>"
        self.at = self.at.parent

    def handle_data(self, data):
        self.at.children.append(data)
