"""Write every generated page of docs/reference."""

from scripts.reference.pages import ROOT, pages

for path, text in pages().items():
    (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
    (ROOT / path).write_text(text)
