// All texts of the page, in its languages.
const LANGUAGES = ["en", "zh"];
const WORDS = {
  other: ["中文", "English"],
  view: ["Model", "模型"],
  translate: ["Translation", "翻译"],
  key: ["API key", "API 密钥"],
  from: ["From", "源语言"],
  to: ["To", "目标语言"],
  auto: ["Detect language", "检测语言"],
  autoFound: ["Detected: {0}", "检测到：{0}"],
  swap: ["Swap languages", "交换语言"],
  sourceText: ["Text to translate", "待翻译的文本"],
  typeHere: ["Type, paste or drop a file", "输入、粘贴或拖入文件"],
  translation: ["Translation", "译文"],
  clear: ["Clear", "清空"],
  file: ["File…", "文件…"],
  copy: ["Copy", "复制"],
  copied: ["Copied", "已复制"],
  doubtful: ["Underlined: probability below 50 %", "下划线：概率低于 50 %"],
  explain: ["Explain", "解释"],
  explanation: ["Explanation", "解释"],
  explanationOf: ["Explanation of an answer", "对一个答案的解释"],
  aboutWord: ["About the chosen word", "所选的词"],
  probability: ["Probability {0} %", "概率 {0} %"],
  lookedAt: ["Looked at", "注意到"],
  noAttention: ["This model has no attention.", "此模型没有注意力。"],
  alternatives: ["Alternatives from here", "从此处起的其他译法"],
  noOthers: ["None that differ.", "没有不同的译法。"],
  searching: ["…", "…"],
  glossary: ["Glossary", "术语表"],
  glossaryNote: ["A sentence with the term on the left is translated with the words on the right.", "句子中出现左边的术语时，译文使用右边的译法。"],
  noPivot: ["A glossary needs a direct translation; this one goes through another language.", "术语表只用于直接翻译；这里经由另一种语言。"],
  term: ["Term", "术语"],
  itsTranslation: ["Its translation", "译法"],
  addTerm: ["Add a term", "添加术语"],
  remove: ["Remove this term", "删除此术语"],
  inUse: ["({0})", "（{0}）"],
  keys: ["Keyboard", "键盘"],
  nothingKept: ["Texts go to this server alone, which does not keep them.", "文本只发送到本服务器，不作保存。"],
  "theme-auto": ["Theme: system", "主题：跟随系统"],
  "theme-light": ["Theme: light", "主题：浅色"],
  "theme-dark": ["Theme: dark", "主题：深色"],
  translating: ["Translating", "翻译中"],
  ready: ["Translation: {0}", "译文：{0}"],
  count: ["{0} / {1}", "{0} / {1}"],
  tooLong: ["{0} characters; this server takes {1} at once.", "共 {0} 个字符；本服务器一次最多接受 {1} 个。"],
  gone: ["The server cannot be reached.", "无法连接服务器。"],
  busy: ["The server is busy; try again in a moment.", "服务器繁忙，请稍后再试。"],
  loading: ["The server is loading its models.", "服务器正在加载模型。"],
  broken: ["The answer broke off.", "回答中断了。"],
  fileReady: ["{0} is translated.", "{0} 已翻译。"],
  unknown: ["Unknown to the model: {0}", "模型不认识：{0}"],
  left: ["Not translated: {0}; {1}", "未翻译：{0} 处；{1}"],
  fileWorking: ["Translating {0} …", "正在翻译 {0} …"],
  save: ["Save {0}", "保存 {0}"],
  fileTooMany: ["One file at a time.", "一次只能翻译一个文件。"],
  chosenWord: ["{0}, {1} %. Looked at {2}.", "{0}，{1} %。注意到 {2}。"],
  prefix: ["Prefix", "前缀"],
  method: ["Search", "搜索"],
  beam: ["beam", "束搜索"],
  sample: ["sampling", "采样"],
  beamSize: ["Beam", "束宽"],
  ofRecipe: ["recipe", "配方"],
  temperature: ["Temperature", "温度"],
  seed: ["Seed", "随机种子"],
  withoutHead: ["Without head", "去掉头"],
  withoutToken: ["Without token", "遮住词元"],
  headHint: ["NAME:HEAD", "名称:头"],
  tokenHint: ["number", "序号"],
  live: ["Live, computed in the page", "实时，在网页里计算"],
  again: ["Explain", "解释"],
  close: ["Close", "关闭"],
  run: ["Run", "运行"],
  send: ["Send", "发送"],
  newDialogue: ["New dialogue", "新对话"],
  result: ["Result", "结果"],
  numbers: ["{0} numbers", "{0} 个数"],
  eachLine: ["One text a line; their cosine similarities are shown.", "每行一个文本；显示它们的余弦相似度。"],
  keyNow: ["translate, or run, now", "立即翻译或运行"],
  keySwap: ["swap languages", "交换语言"],
  keyCopy: ["copy the translation", "复制译文"],
  keyFile: ["open a file", "打开文件"],
  keyGlossary: ["glossary", "术语表"],
  keyExplain: ["explain", "解释"],
  keyWords: ["walk through the words of the translation", "在译文的词之间移动"],
  keyChoose: ["look at a word", "查看一个词"],
  keyBack: ["close", "关闭"],
  source: ["Source", "源文本"],
  text: ["Text", "文本"],
  second: ["Second text", "第二个文本"],
  question: ["Question", "问题"],
  context: ["Context", "上下文"],
  prompt: ["Prompt", "提示"],
  history: ["History", "历史"],
  message: ["Message", "消息"],
  recording: ["Recording", "录音"],
  record: ["Record", "录制"],
  recordingEnds: ["End the recording", "结束录制"],
  noMicrophone: ["The microphone cannot be used: {0}", "无法使用麦克风：{0}"],
  listening: ["Transcribing {0} …", "正在转写 {0} …"],
};

const fitting = (code) => ((code || "en").toLowerCase().startsWith("zh") ? "zh" : "en");
let language = fitting(navigator.language);

export const current = () => language;
export const turn = (code) => {
  language = fitting(code);
};
export const t = (key, ...args) =>
  (WORDS[key]?.[LANGUAGES.indexOf(language)] ?? key).replace(/\{(\d)\}/g, (_, i) => args[i]);
export const has = (key) => key in WORDS;
export const number = (n) => n.toLocaleString(language === "zh" ? "zh-CN" : "en-GB");
export const percent = (p) => String(Math.round(100 * p));

// The name of a language in the language of the page.
export function languageName(code, fallback) {
  try {
    const names = new Intl.DisplayNames([language === "zh" ? "zh-CN" : "en-GB"], { type: "language" });
    const name = names.of(code);
    return name === code ? fallback : name;
  } catch {
    return fallback;
  }
}
