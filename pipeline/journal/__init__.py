"""Journals as Spark reads them."""
