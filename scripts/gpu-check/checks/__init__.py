"""What is judged, one subject a file: each has `judge(bundle, findings)`."""
