class Shelf:
    def __init__(self): self.books = {}
    def add(self, title, year=0): self.books[title] = year; return self
    def get(self, title, default=None): return self.books.get(title, default)
    def count(self, year): return list(self.books.values()).count(year)
    def __contains__(self, title): return title in self.books
    def __len__(self): return len(self.books)
