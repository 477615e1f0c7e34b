// Every word of the page in English and Chinese. A word may have places for values: {name}.
"use strict";
Ropewalk.words = (() => {
  const WORDS = {
    skip: ["To the panels", "跳到图表"],
    title: ["See a method", "看见一种方法"],
    subtitle: [
      "What a method of length extrapolation does to a model, drawn from its formula.",
      "一种长度外推方法对模型做了什么：直接由公式画出。",
    ],
    choose: ["Two extensions, one model", "两个扩展，一个模型"],
    method: ["extension", "扩展"],
    model: ["Model", "模型"],
    model_summary: [
      "trained on {trained} tokens · {dims} dimensions of a head rotate · base {base} · {heads} heads · {layers} layers{own}",
      "训练长度 {trained} · 每头旋转 {dims} 维 · base {base} · {heads} 头 · {layers} 层{own}",
    ],
    own_schedule: [" · its own schedule: {type}", " · 自带频率方案：{type}"],
    another_model: ["Another model:", "换一个模型："],
    asking: ["The server draws it…", "服务器正在计算…"],
    not_here: [
      "This page does not hold that line. Write it into a page: {command}; or start ropewalk serve MODEL, whose page draws what you type.",
      "此页面没有这一行。写入页面：{command}；或运行 ropewalk serve MODEL，其页面会画出你输入的内容。",
    ],
    target: ["Target length", "目标长度"],
    target_shown: ["{length} tokens · {times}×", "{length} token · {times} 倍"],
    schedule: ["Schedule", "频率方案"],
    schedule_about: [
      "How far each pair of dimensions has rotated at the end of the text. Red: angles that never occurred in training.",
      "到文本末尾，每对维度转过多少。红色：训练中从未出现过的角度。",
    ],
    reach: ["Reach", "可见范围"],
    reach_about: [
      "Which keys each query sees, and how far away each of them appears to it.",
      "每个查询能看到哪些键，每个键看起来有多远。",
    ],
    logits: ["Logits", "Logit"],
    logits_about: [
      "How the logit of an equal token falls with distance, and what the logits of a row are multiplied by.",
      "相同 token 的 logit 如何随距离下降，每一行的 logit 乘以多少。",
    ],
    use: ["Use it", "使用"],
    use_about: [
      "The same two extensions on the command line, in Python and in engines.",
      "在命令行、Python 和推理引擎中使用这两个扩展。",
    ],
    live: ["On a live model", "在真实模型上"],
    live_about: ["Your own text, and a conversation, under both extensions.", "在两个扩展下测量你自己的文本，并对话。"],
    live_none: [
      "This page stands alone. Start a server, and it measures your own text and chats here:",
      "此页面目前独立运行。启动服务器后，可在这里测量自己的文本并对话：",
    ],
    footer: ["Made by Ropewalk", "由 Ropewalk 生成"],
    licences: ["Charts by uPlot (MIT).", "图表使用 uPlot（MIT）。"],

    in_layer: ["in layer {key}", "第 {key} 层"],
    formula: ["Formula and source", "公式与出处"],
    hint: ["Move over it, or use the arrow keys.", "移动指针或按方向键查看数值。"],
    compare_both: ["Compare both by measurement", "实测比较两者"],
    none_new: ["every angle is known from training", "所有角度在训练中都出现过"],
    some_new: ["{count} of {pairs} pairs meet new angles", "{pairs} 对中有 {count} 对遇到新角度"],
    no_rotation: ["nothing rotates", "没有旋转"],
    turns_axis: ["rotations", "圈数"],
    pair_axis: ["pair, fastest first", "维度对，从快到慢"],
    legend_trained: ["in training", "训练中"],
    legend_now: ["in this text", "本文本"],
    legend_angle: ["new angles", "新角度"],
    legend_turn: ["one turn", "一整圈"],
    slowed_title: ["How much slower each pair rotates", "每对维度慢了多少倍"],
    slowed_axis: ["times slower", "慢的倍数"],
    pair_readout: [
      "Pair {pair}: wavelength {wave} tokens, {trained} rotations in training, {asked} in this text",
      "第 {pair} 对：波长 {wave} token，训练中 {trained} 圈，本文本中 {asked} 圈",
    ],
    slowed_readout: ["Pair {pair}: A {a}×, B {b}×", "第 {pair} 对：A {a}×，B {b}×"],
    still: ["not rotated", "不旋转"],
    seen_all: ["the last query sees every key", "最后一个查询能看到所有键"],
    seen_some: ["the last query sees {seen} of {all} keys", "最后一个查询看到 {all} 个键中的 {seen} 个"],
    legend_near: ["near → far", "近 → 远"],
    legend_new: ["further than trained", "超出训练距离"],
    legend_unseen: ["not seen", "看不到"],
    query_axis: ["query", "查询"],
    key_axis: ["key", "键"],
    cell_seen: [
      "Query {query}, key {key}: {true} tokens apart, effective distance {distance}",
      "查询 {query}，键 {key}：相距 {true} token，有效距离 {distance}",
    ],
    cell_unseen: [
      "Query {query}, key {key}: {true} tokens apart, not seen",
      "查询 {query}，键 {key}：相距 {true} token，看不到",
    ],
    cell_later: ["Query {query}, key {key}: the key comes later", "查询 {query}，键 {key}：键在查询之后"],
    distances_title: ["Effective distance of the last query's keys", "最后一个查询的键的有效距离"],
    effective_axis: ["effective distance", "有效距离"],
    distance_axis: ["distance (tokens)", "距离（token）"],
    distance_readout: ["Distance {x}: A {a}, B {b}", "距离 {x}：A {a}，B {b}"],
    trained_mark: ["trained", "训练"],
    decay_title: ["Logit of an equal token, by distance", "相同 token 的 logit，随距离"],
    decay_band: ["Mean, and range of nearby distances.", "均值，以及邻近距离的范围。"],
    logit_axis: ["logit", "logit"],
    decay_learned: ["Learned numbers as they are before training.", "可学习的参数取训练前的初值。"],
    scale_title: ["Factor of a row's logits, by position", "一行 logit 的倍数，随位置"],
    factor_axis: ["factor", "倍数"],
    position_axis: ["position (tokens)", "位置（token）"],
    position_readout: ["Position {x}: A × {a}, B × {b}", "位置 {x}：A × {a}，B × {b}"],
    a_layer: ["Layers differ; the first one is drawn.", "各层不同；图中是第一层。"],
    keyboard: ["Arrow keys move the cursor.", "方向键移动光标。"],
    unseen_value: ["not seen", "看不到"],

    command_line: ["Command line", "命令行"],
    in_python: ["Python", "Python"],
    in_engines: ["Engines, for a Llama", "推理引擎（以 Llama 为例）"],
    engine_flags: ["vLLM without Ropewalk", "不装 Ropewalk 的 vLLM"],
    copy: ["Copy", "复制"],
    copied: ["Copied", "已复制"],
    native: ["computes it from the config", "按配置直接计算"],
    lowered: ["computes it, written pair by pair by export", "可以计算：export 逐对写出频率"],
    plugin: ["computes it with Ropewalk installed beside it", "安装 Ropewalk 后可以计算"],
    frozen: ["only as a static schedule for one length", "只能冻结为某一长度的静态方案"],
    refused: ["cannot run it", "无法运行"],
    own_asked: ["ropewalk export says, for this checkpoint", "由 ropewalk export 针对该检查点判断"],
    warn_training: [
      "For models trained with it: a rotary model breaks without that training.",
      "只适用于用它训练过的模型：否则旋转模型会失效。",
    ],
    warn_tuning: ["Its authors fine-tune the model with it first.", "其作者先用它微调模型。"],
    warn_static: [
      "A static schedule: answers to short prompts change too. dynamic_yarn keeps them exact.",
      "静态方案：短提示的回答也会改变。dynamic_yarn 保持短提示不变。",
    ],
    warn_ntk: [
      "ntk reaches a quarter to half of its factor: for {times}× write ntk:factor={double} or more.",
      "ntk 只能达到其倍数的四分之一到一半：要 {times} 倍，请写 ntk:factor={double} 或更大。",
    ],
    warn_forgets: [
      "Keys that leave the window are forgotten: good for endless text, useless for looking something up.",
      "离开窗口的键会被遗忘：适合无尽文本，不适合回查内容。",
    ],
    warn_new: [
      "{count} pairs meet angles that training never showed: expect the loss to rise.",
      "{count} 对维度遇到训练中没有的角度：损失很可能上升。",
    ],
    warn_new_distance: [
      "Distances go beyond training (up to {distance}): expect the loss to rise.",
      "距离超出训练范围（最大 {distance}）：损失很可能上升。",
    ],
    warn_numbering: [
      "It changes how tokens are numbered in training; at inference the formula is that of the rest.",
      "它改变训练时的编号；推理时公式由其余部分决定。",
    ],
    warn_decoding: [
      "It combines several contexts, or readings of one text; the formula of attention within one stays.",
      "它合并多个上下文，或对同一文本的多次读取；其中每一个的注意力公式不变。",
    ],
    warn_surgery: ["It changes the weights first: rw.convert.", "它先改变权重：rw.convert。"],
    warn_own: [
      "The checkpoint has a schedule of its own: this one is put on top of it. +instead replaces it.",
      "该检查点自带频率方案：这里在其上叠加。写 +instead 则替换。",
    ],
    no_warning: ["Nothing to warn about.", "没有需要注意的。"],

    key: ["API key", "API 密钥"],
    connect: ["Connect", "连接"],
    key_needed: ["The server asks for an API key.", "服务器需要 API 密钥。"],
    losses: ["Loss of each token", "每个 token 的损失"],
    losses_about: [
      "The stronger the colour, the more the token surprised the model. The curve shows where each stops coping.",
      "颜色越浓，模型越意外。曲线显示每个模型从哪里开始失效。",
    ],
    your_text: ["your text", "你的文本"],
    measure: ["Measure", "测量"],
    measuring: ["Measuring…", "测量中…"],
    no_text: ["Paste a text first.", "请先粘贴文本。"],
    mean_loss: ["{name}: mean loss {mean} nats per token", "{name}：平均损失 {mean} nat / token"],
    token_readout: ["Token {place} {token}: A {a}, B {b} nats", "第 {place} 个 token {token}：A {a}，B {b} nat"],
    curve_title: ["Loss by position, mean of {window} tokens", "损失随位置变化，{window} 个 token 的均值"],
    loss_axis: ["nats per token", "nat / token"],
    base_model: ["base model", "基础模型"],
    breaks: ["breaks at {place}", "在 {place} 处失效"],
    breaks_short: ["base breaks", "基础模型失效"],
    breaks_not: ["holds in this text", "在此文本中没有失效"],
    attention: ["Attention of one head", "一个头的注意力"],
    attention_about: [
      "Which earlier tokens each token reads, in the last 512 tokens of your text.",
      "文本最后 512 个 token 中，每个 token 读取了前面哪些 token。",
    ],
    layer: ["layer", "层"],
    head: ["head", "头"],
    show_attention: ["Show", "显示"],
    attention_axes: ["Rows read columns", "行读取列"],
    attention_readout: ["{query} reads {key}: weight {weight}", "{query} 读取 {key}：权重 {weight}"],
    chat: ["Both answer", "同时回答"],
    chat_about: ["The same words go to both; answers come as they are generated.", "同样的话发给两者，边生成边显示。"],
    plain_model: ["A base model: it continues your text.", "基础模型：它会续写你的文本。"],
    message: ["message", "消息"],
    send: ["Send", "发送"],
    stop: ["Stop", "停止"],
    clear: ["Clear", "清空"],
    you: ["You", "你"],
    failed: ["The server said: {message}", "服务器返回：{message}"],
    strange: ["The server's answer was not understood.", "无法理解服务器的应答。"],
    unreachable: ["The server does not answer.", "服务器没有应答。"],
  };
  const LANGUAGES = ["en", "zh"];
  let language = "en";

  function choose(wanted) {
    language = LANGUAGES.includes(wanted) ? wanted : "en";
    document.documentElement.lang = language === "zh" ? "zh-Hans" : "en";
    for (const element of document.querySelectorAll("[data-word]")) element.textContent = t(element.dataset.word);
    for (const button of document.querySelectorAll("[data-language]")) {
      button.setAttribute("aria-pressed", String(button.dataset.language === language));
    }
  }

  function t(word, values = {}) {
    const text = WORDS[word][LANGUAGES.indexOf(language)];
    return text.replace(/\{(\w+)\}/g, (_, name) => String(values[name]));
  }

  const ofBrowser = () => (/^zh\b/i.test(navigator.language) ? "zh" : "en");

  return { t, choose, ofBrowser, current: () => language, WORDS };
})();
