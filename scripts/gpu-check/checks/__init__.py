"""The checks. Each file has one subject, and a function `judge(bundle, findings)`."""
