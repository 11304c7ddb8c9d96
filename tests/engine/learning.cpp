// A fuzzer of the trainer: random shapes, some of them invalid, random ids, passes and steps.
//     c++ ... -fsanitize=address,undefined tests/engine/learning.cpp -o learning && ./learning 60
#include <cstdio>
#include <ctime>
#include <random>

#include "../../src/transduce/engine/learning/learning.cpp"

static std::mt19937 random_bits(1);
static int below(int n) { return (int)(random_bits() % (unsigned)n); }
static bool rarely() { return below(200) == 0; }

static StackShape stack() {
  StackShape s{};
  s.layers = 1 + below(3), s.heads = 1 + below(3), s.head_width = 1 + below(9);
  s.inner = 1 + below(20), s.activation = below(6), s.pre_norm = below(2);
  s.positions = below(8), s.max_positions = 1 + below(12), s.epsilon = 1e-5f;
  s.rms = below(2), s.buckets = 32, s.distance = 128;
  if (rarely()) s.layers = -1;
  if (rarely()) s.heads = 1 << 30;
  return s;
}

struct Ids {
  std::vector<int32_t> ids, lengths;
  void draw(int count, int size) {
    for (int i = 0; i < count; i++) {
      lengths.push_back(rarely() ? 0 : 1 + below(rarely() ? 40 : 9));
      for (int j = 0; j < lengths.back(); j++) ids.push_back(rarely() ? size : below(size));
    }
  }
};

static bool round() {
  ModelShape shape{};
  shape.encoder = stack(), shape.decoder = stack(), shape.width = 1 + below(20);
  shape.source_size = below(4) ? 4 + below(20) : 0, shape.target_size = 4 + below(20);
  shape.scale = 2;
  const Training training{below(3), below(16), below(2), below(2) ? 0.2f : 0, below(2) ? 0.1f : 0};
  Learner* learner = learner_new(&shape, &training);
  if (!learner) return false;
  learner_initialise(learner, (uint32_t)below(1000));
  for (int k = 0; k < 3; k++) {
    const int n = 1 + below(5);
    Ids sources, inputs;
    sources.draw(n, std::max(shape.source_size, 1)), inputs.draw(n, shape.target_size);
    std::vector<int32_t> targets(inputs.ids.size());
    for (int32_t& target : targets) target = below(shape.target_size + 1) - 1;
    const int32_t* wanted = below(4) ? targets.data() : nullptr;
    if (!learner_pass(learner, sources.ids.data(), sources.lengths.data(), inputs.ids.data(),
                      inputs.lengths.data(), wanted, n, 7, below(3) - 1, below(2))) {
      continue;
    }
    float seen = learner_logits(learner)[0];
    for (int i = 0; i < learner_attentions(learner); i++) {
      seen += learner_attention(learner, i, n - 1, 0)[0];
    }
    const Step step{k + 1, 1e-3f, 0.9f, 0.98f, 1e-9f, 0.1f, 1, below(2) ? 0.95f : 0, 0.4f, 0.9f};
    const bool finite = std::isfinite(seen) & std::isfinite(learner_step(learner, &step));
    const bool bounded = !(training.left_out & NO_NORM);  // without, vectors may grow beyond all bounds
    if (bounded && !finite) std::abort();
  }
  learner_delete(learner);
  return true;
}

int main(int count, char** arguments) {
  const double seconds = count > 1 ? std::atof(arguments[1]) : 10;
  int rounds = 0, valid = 0;
  while ((double)std::clock() / CLOCKS_PER_SEC < seconds) rounds++, valid += round();
  std::printf("%d shapes, %d of them valid\n", rounds, valid);
  return valid ? 0 : 1;
}
