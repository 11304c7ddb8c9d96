// Outputs of random models as text, the same bytes from every build of the engine for a processor that
// fuses products and sums; their hash is tests/golden/one_answer/agreement.sha256.
//
//     agreement | sha256sum
//
// Every activation, norm order and kind of positions, in each precision, with an encoder and without,
// greedy, with a beam and with samples.
#include "random_model.h"

namespace {

constexpr int SENTENCES = 6, LIMIT = 12, VOCABULARY = 37;

struct Line {
  std::string name, tokens;
  double score;
};

ModelShape shape_of(int activation, int pre_norm, int positions, int precision, bool encoder,
                    Random& random) {
  const int heads = random.from_to(1, 3), head_width = 2 * random.from_to(2, 9);
  const int norm = random.below(2);
  const StackShape stack{2,        heads, head_width, random.from_to(8, 40), activation,
                         pre_norm, positions, 64, norm, 1e-5f};
  const int sources = encoder ? VOCABULARY : 0;
  return {encoder ? stack : StackShape{}, stack, heads * head_width, sources, VOCABULARY,
          precision,                      2.0f};
}

void search_with(const Model* model, const std::string& name, Random& random,
                 std::vector<Line>& lines) {
  Texts texts, begin;
  for (int i = 0; i < SENTENCES; i++) {
    texts.lengths.push_back(random.from_to(1, 9));
    for (int j = 0; j < texts.lengths.back(); j++) texts.ids.push_back(random.below(VOCABULARY));
    begin.ids.push_back(2), begin.lengths.push_back(1);
  }
  const std::vector<int32_t> limits(SENTENCES, LIMIT), none(SENTENCES, 0);
  const bool encoder = model->has_encoder();
  const int32_t forbidden[] = {0, 2};
  std::vector<double> uniforms(SENTENCES * 2 * LIMIT);
  for (double& one : uniforms) one = random.bits() / 4294967296.0;
  const Sampling none_drawn{}, drawn{0.8, 0.9, 0.01, 20, LIMIT, uniforms.data()};
  for (int way = 0; way < 3; way++) {
    const int beam = way == 0 ? 1 : way == 1 ? 4 : 2;
    const SearchOptions options{beam, 1, GNMT, way < 2 ? EXACT : FIRST, 0, 0, 3, 0, 0, 1,
                                2,    0,         forbidden, 0.6, way < 2 ? none_drawn : drawn};
    Results* found = search(model, texts, encoder ? begin : texts, limits, none, options);
    if (!found) exit(3);
    const int32_t* tokens = search_tokens(found);
    for (int i = 0; i < SENTENCES; i++) {
      std::string text;
      for (int j = 0; j < search_lengths(found)[i]; j++) text += std::to_string(*tokens++) + ",";
      const std::string at = name + " beam " + std::to_string(beam) + " " + std::to_string(i);
      lines.push_back({at, text + ".", search_scores(found)[i]});
    }
    search_delete(found);
  }
}

std::vector<Line> outputs() {
  std::vector<Line> lines;
  Random random(1);
  for (int precision = FLOAT32; precision <= INT8; precision++) {
    for (int activation = RELU; activation <= SWIGLU; activation++) {
      for (int positions = NO_POSITIONS; positions <= ALIBI; positions++) {
        for (int kind = 0; kind < 4; kind++) {
          const int pre_norm = kind % 2, encoder = kind / 2;
          Loaded loaded(shape_of(activation, pre_norm, positions, precision, encoder, random));
          if (!loaded.model) exit(2);
          loaded.load_all(random);
          char name[100];
          snprintf(name, sizeof name, "precision %d activation %d positions %d norm %d encoder %d",
                   precision, activation, positions, pre_norm, encoder);
          search_with(loaded.model, name, random, lines);
        }
      }
    }
  }
  return lines;
}

}  // namespace

int main() {
  for (const Line& line : outputs()) {
    printf("%s|%s|%.17g\n", line.name.c_str(), line.tokens.c_str(), line.score);
  }
}
