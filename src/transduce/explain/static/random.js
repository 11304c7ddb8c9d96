// Random numbers of sampling, equal to NumPy's `Generator(PCG64(SeedSequence(entropy)))`.

// 128 bits, as 4 words of 32, from a few small numbers.
function seedPool(entropy) {
  const pool = [0, 0, 0, 0];
  let constant = 0x43b0d7e5;
  const mixedIn = (number) => {
    let word = number ^ constant;
    constant = Math.imul(constant, 0x931e8875);
    word = Math.imul(word, constant);
    return word ^ (word >>> 16);
  };
  const mixed = (a, b) => {
    const word = Math.imul(0xca01f9dd, a) - Math.imul(0x4973f715, b);
    return word ^ (word >>> 16);
  };
  for (let k = 0; k < 4; k++) pool[k] = mixedIn(entropy[k] ?? 0);
  for (let from = 0; from < 4; from++)
    for (let to = 0; to < 4; to++) if (from !== to) pool[to] = mixed(pool[to], mixedIn(pool[from]));
  return pool;
}
// Four numbers of 64 bits: the state and the stream of the generator.
function generatorSeed(pool) {
  let constant = 0x8b51f9dd;
  const halves32 = Array.from({ length: 8 }, (_, k) => {
    let word = pool[k % 4] ^ constant;
    constant = Math.imul(constant, 0x58f38ded);
    word = Math.imul(word, constant);
    return BigInt((word ^ (word >>> 16)) >>> 0);
  });
  return [0, 2, 4, 6].map((k) => halves32[k] | (halves32[k + 1] << 32n));
}
// Numbers from [0, 1), one for each call.
function uniforms(seed) {
  const wrapped = (number) => BigInt.asUintN(128, number),
    [high, low, streamHigh, streamLow] = generatorSeed(seedPool([seed, 0, 0])),
    step = wrapped((((streamHigh << 64n) | streamLow) << 1n) | 1n);
  let state = 0n;
  const advance = () => {
    state = wrapped(state * 0x2360ed051fc65da44385df649fccf645n + step);
  };
  advance();
  state = wrapped(state + ((high << 64n) | low));
  advance();
  return () => {
    advance();
    const word = BigInt.asUintN(64, (state >> 64n) ^ state),
      turn = state >> 122n,
      turned = BigInt.asUintN(64, (word >> turn) | (word << (64n - turn)));
    return Number(turned >> 11n) / 2 ** 53;
  };
}
