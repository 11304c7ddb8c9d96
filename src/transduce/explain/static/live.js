// The model of the page, for its screens and for the console: `await transduce.explain("a text")`.
const transduce = (() => {
  const facts = JSON.parse(document.getElementById("model").textContent),
    model = new LiveModel(facts, bytes(facts.bytes)),
    explain = async (text, settings) => published(model.explain([text].flat(), settings));
  return { model, explain };
})();
