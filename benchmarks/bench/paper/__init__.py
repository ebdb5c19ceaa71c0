"""The paper, part by part: its experiments at a small scale, and the page that collects them."""
