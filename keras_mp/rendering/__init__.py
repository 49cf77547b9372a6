"""What pictures and pages share: numbers as text, ticks, SVG, matplotlib, and a style."""
