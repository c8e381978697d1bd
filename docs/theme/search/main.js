// Search in the page itself. The theme's own uses a worker that fetches JSON; browsers refuse both
// to pages that are opened from disk.
(function () {
  var results = document.getElementById("mkdocs-search-results");
  if (!results) return;
  var input = document.getElementById("mkdocs-search-query");

  function load(path, then) {
    var script = document.createElement("script");
    script.src = base_url + "/search/" + path;
    script.onload = then;
    document.head.appendChild(script);
  }

  function article(section) {
    var body = document.createElement("article");
    var link = document.createElement("a");
    link.href = base_url + "/" + section.location;
    link.textContent = section.title;
    body.appendChild(document.createElement("h3")).appendChild(link);
    body.appendChild(document.createElement("p")).textContent = section.text.slice(0, 200);
    return body;
  }

  function begin() {
    var sections = {};
    var index = lunr(function () {
      this.ref("location");
      this.field("title", { boost: 10 });
      this.field("text");
      searchIndex.docs.forEach(function (section) {
        sections[section.location] = section;
        this.add(section);
      }, this);
    });

    function search() {
      var words = lunr.tokenizer(input.value);
      var hits = !words.length ? [] : index.query(function (query) {
        words.forEach(function (word) {
          query.term(word.toString(), { boost: 10, usePipeline: true });
          query.term(word.toString(), { wildcard: lunr.Query.wildcard.TRAILING });
        });
      });
      results.replaceChildren.apply(results, hits.map(function (hit) {
        return article(sections[hit.ref]);
      }));
      if (!hits.length) results.textContent = results.getAttribute("data-no-results-text");
    }

    input.value = new URLSearchParams(window.location.search).get("q") || "";
    input.addEventListener("input", search);
    search();
  }

  load("lunr.js", function () { load("index.js", begin); });
})();
