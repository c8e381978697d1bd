"""What a recipe may say: every setting, its checks, and how recipe files are loaded."""
