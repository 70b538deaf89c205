"""The page to explore a recorded run by hand: one HTML file that replays any draft in a browser.

`trace_data` packs recorded runs, `page` assembles the file from it and from the pieces in `assets`.
"""
