// Every word of the page in English and Chinese. A word may have places for values: {name}.
"use strict";
Ropewalk.words = (() => {
  const WORDS = {
    skip: ["To the panels", "跳到图表"],
    title: ["See a method", "方法可视化"],
    subtitle: [
      "What a method of length extrapolation does to a model, drawn from its formula.",
      "一种长度外推方法对模型做了什么：直接由公式画出。",
    ],
    share_link: ["Copy link", "复制链接"],
    share_picture: ["Save as a picture", "保存为图片"],
    lead_title: ["Loss by position", "损失随位置变化"],
    lead_gap: ["", " "], // after a name in Latin letters
    lead_base: ["The base model", "原模型"],
    lead_breaks: ["{name} breaks at {at} tokens", "{name}在 {at} token 处失效"],
    lead_reads_on: ["{name} reads on to {length}", "{name}一直读到 {length}"],
    lead_rises: [
      "the loss of {name} is {more} nats higher beyond {trained}",
      "{name}在 {trained} 之外的损失高 {more} nat",
    ],
    lead_alone: ["base model, its last {trained} tokens alone", "原模型，只读最近 {trained} 个 token"],
    lead_and: ["; ", "；"],
    lead_sentence: ["{sentence}.", "{sentence}。"],
    comma: [", ", "，"],
    lead_why: ["Why? Ten steps", "为什么？看十步"],
    lead_about: [
      "{model} read {length} tokens of held-out text (texts: {texts}). Loss: how little it expected each token, in nats (minus the natural logarithm of the token's probability); the mean of the last {window} tokens.",
      "{model} 读了 {texts} 篇留出文本，各 {length} token。损失：模型对每个 token 有多意外（其概率的自然对数取负，单位 nat），取最近 {window} 个 token 的平均。",
    ],
    lead_read_at: [
      "This figure and the attention below were read at {length} tokens; the target length does not change them.",
      "此图和下面的注意力是在 {length} token 上实测的，不随目标长度变化。",
    ],
    lead_rule: ["When does a line break?", "怎样算失效？"],
    lead_rule_says: [
      "Where it comes to stay half a nat above the thin grey line: there, and at nine tenths of the places that follow. That line is the base model which reads at each place no more than the last tokens, at most as many as it was trained on; it cannot break, and a passage that is hard for it as well is no break. The loss of a line is higher where its mean beyond the trained length is a quarter of a nat above that line's.",
      "从某处起，它一直比细灰线高出半个 nat（后面九成以上的位置都是如此）。细灰线是原模型在每个位置只读最近的 token（不超过训练长度）时的损失：它不会失效；对它同样难读的段落不算失效。“损失高”是指训练长度之外的平均损失比细灰线高四分之一 nat 以上。",
    ],
    lead_mark: ["breaks at {at}", "在 {at} 处失效"],
    lead_readout: ["Token {x}: {losses} nats", "第 {x} 个 token：{losses} nat"],
    lead_unread: [
      "{line} was not read with this page; this reads it, if the model takes it: {command}",
      "本页未用 {line} 实测；若写法有效，这样会测：{command}",
    ],
    lookup: ["Where a token looks", "一个 token 在看哪里"],
    lookup_about: [
      "Point at an underlined token of the text, tap it, or walk with the arrow keys; scroll the text for more of them. Shown are the keys (earlier tokens) with most of its attention, over all heads of the later half of the layers.",
      "指向或点按文本中带下划线的 token，或用方向键移动；向下滚动可看更多文本。显示它注意力最大的键（前面的 token），取后一半层所有头的平均。",
    ],
    lookup_said: ["{token}, token {place}", "{token}，第 {place} 个 token"],
    lookup_back: ["{distance} back", "前 {distance}"],
    lookup_itself: ["itself", "自身"],
    lookup_share: [
      "{count} keys with {share}% of the attention. The line under the arcs is solid over distances of training.",
      "{count} 个键占注意力的 {share}%。弧线下方的横线，实线部分是训练时见过的距离。",
    ],
    lookup_arcs: ["Arcs from the token to its keys", "从该 token 到它的键的弧线"],
    lookup_text: ["the text that was read", "读过的文本"],
    walk: ["One token, three kinds of methods", "一个 token，三类方法"],
    walk_about: [
      "Ten steps: what a longer text does to the last token, and how methods change its rotation, its focus, or its distances.",
      "十步：更长的文本对最后一个 token 意味着什么，各类方法如何改变它的旋转、注意力的集中程度或距离。",
    ],
    walk_back: ["Back", "上一步"],
    walk_next: ["Next", "下一步"],
    walk_play: ["Play", "播放"],
    walk_pause: ["Pause", "暂停"],
    walk_beyond: ["farther than in training", "比训练时更远"],
    walk_within: [
      "The target length, {to} tokens, is within training: nothing is new there. The steps show {length} tokens.",
      "目标长度 {to} token 在训练长度之内，没有新的东西。各步显示的是 {length} token。",
    ],
    walk_slider: ["Position of the token", "token 的位置"],
    walk_position: [
      "Position {position}. Below each dial: the pair, and how many tokens it takes for a turn.",
      "位置 {position}。表盘下方：第几对，以及转一圈的 token 数。",
    ],
    walk_pair: ["pair {pair}", "第 {pair} 对"],
    walk_wave: ["{wave} tokens", "{wave} token"],
    walk_dials: [
      "Eight pairs of dimensions as dials, fastest first, with the tokens of a full turn",
      "八对维度画成表盘，从快到慢，附转一圈所需的 token 数",
    ],
    walk_number: ["1. A position is a number in base β", "1. 位置是一个 β 进制数"],
    walk_number_says: [
      "Each pair of dimensions turns by a fixed angle with every token, as the digits of a counter do. Of a head, d = {dims} dimensions rotate, two for a digit: {pairs} digits in base β = {base}^(2/d) = {beta}. The fastest comes round every {fast} tokens, the slowest every {slow}. The thin hand is the token before.",
      "每过一个 token，每对维度转过固定的角度，如同计数器的各位数字。每个头旋转 d = {dims} 维，两维为一位，共 {pairs} 位，进制 β = {base}^(2/d) = {beta}。最快的一位每 {fast} 个 token 转一圈，最慢的每 {slow} 个。细针是前一个 token。",
    ],
    walk_trained: ["2. What training has seen", "2. 训练见过什么"],
    walk_trained_says: [
      "Training went up to position {last}. Fast pairs came round again and again. {partial} of the {pairs} pairs never completed a turn: of them the model knows the filled part alone.",
      "训练最多到位置 {last}。快的维度转了许多圈；{pairs} 对中有 {partial} 对从未转完一圈：模型只见过填色的部分。",
    ],
    walk_new: ["3. A longer text brings new angles", "3. 更长的文本带来新角度"],
    walk_new_says: [
      "Token {token} looks back to the beginning, {times} times as far as training went. {unseen} slow pairs turn to angles that the model never met, in red.{broken}",
      "第 {token} 个 token 回看开头，距离是训练的 {times} 倍。有 {unseen} 对低频维度转到了训练中没见过的角度（红色）。{broken}",
    ],
    walk_broken: [" This model breaks at {at} tokens.", "该模型在 {at} token 处失效。"],
    walk_pi: ["4. Interpolation crowds the digits", "4. 位置内插让相邻位置变得拥挤"],
    walk_pi_says: [
      "Divide every position by {times}: no angle is new. But neighbours crowd: in the fastest pair two tokens are {after}° apart in place of {before}°, and the model must learn to read that, in about 1,000 steps of fine-tuning.",
      "所有位置除以 {times}：没有新角度。但相邻 token 挤在一起：最快的一对里，相邻两个 token 由相差 {before}° 变为 {after}°，模型须微调约一千步来适应。",
    ],
    walk_ntk: ["5. NTK spreads it over the digits", "5. NTK 把外推压力平摊到每一位"],
    walk_ntk_says: [
      "Change the base instead, from {base} to {ntk_base}: the fastest pair stays, the slowest is slowed {times} times, those between by degrees. Neighbours stay apart without training. But {left} pairs are slowed too little, and still meet new angles.",
      "改为换底：从 {base} 换到 {ntk_base}。最快的一对不变，最慢的放慢 {times} 倍，其余介于两者之间。不训练，相邻 token 也仍分得开。但有 {left} 对放慢得不够，仍遇到新角度。",
    ],
    walk_yarn: ["6. YaRN goes by parts, with a temperature", "6. YaRN 分段处理，再加温度"],
    walk_yarn_says: [
      "Pairs with many turns in training stay ({kept}), those without a full turn are slowed {times} times ({whole}), and {between} lie between. No angle is new. A temperature multiplies all logits by {temperature}, since more keys blur attention. Short texts change as well.",
      "训练中转过许多圈的 {kept} 对不变，没转满一圈的 {whole} 对放慢 {times} 倍，其间 {between} 对过渡。没有新角度。键多了注意力会变散，故所有 logit 再乘以 {temperature}。短文本也会改变。",
    ],
    walk_focus: ["7. log-n keeps the focus", "7. log-n 保持注意力集中"],
    walk_focus_says: [
      "More keys, flatter attention: a key with half of the weight among {trained} keys has {plain}% among {length}. log-n multiplies the logits by ln {length} / ln {trained} = {factor}, which gives this one key {log_n}%. That is the weight of one key. Entropy, over all keys, still rises in real models: log-n about halves the rise, as we measured.",
      "键越多，注意力越平：在 {trained} 个键中占一半权重的键，在 {length} 个键中只占 {plain}%。log-n 把 logit 乘以 ln {length} / ln {trained} = {factor}，使这一个键占 {log_n}%。这只是一个键的权重；在真实模型中，全部键上的熵仍会上升：据我们实测，log-n 大约只把升幅减半。",
    ],
    walk_among: ["among {keys} keys", "{keys} 个键中"],
    walk_with_log_n: ["there with log-n", "加上 log-n"],
    walk_window: ["8. A window keeps distances short", "8. 窗口把距离限制在训练范围内"],
    walk_window_says: [
      "Leave angles alone and change what is seen: the first four tokens, on which models lean whatever they say, and a window, together {seen} keys. No distance goes beyond training, for ever. What has left the window is forgotten.",
      "不动角度，改变能看到的内容：最前面四个 token（无论内容如何，模型总会关注它们）加一个窗口，共 {seen} 个键。距离永远不超出训练范围。离开窗口的内容被遗忘。",
    ],
    walk_rerope: ["9. ReRoPE sees all, and near", "9. ReRoPE：看得到全部，距离却不超出窗口"],
    walk_rerope_says: [
      "Distances up to {near} stay exact; all beyond count as {near}. All {length} keys are seen and no angle is new, without training. Order among far keys is lost. Self-Extend counts them in groups instead, up to {grouped}: their order is coarse.",
      "不超过 {near} 的距离保持精确；更远的一律算作 {near}。{length} 个键全部可见，没有新角度，无需训练。远处的键不再区分先后。Self-Extend 改为分组计数，最远为 {grouped}：远处只保留粗略的先后。",
    ],
    walk_cost: ["10. What each costs", "10. 各自的代价"],
    walk_cost_says: [
      "The same token, {token}, under each. None of them is free; which one is worth its price on your model is measured by ropewalk compare.",
      "同一个 token（{token}）在各方法之下。没有一种是免费的；哪种对你的模型划算，用 ropewalk compare 实测。",
    ],
    walk_seen: ["keys seen", "可见的键"],
    walk_far: ["furthest distance", "最远距离"],
    walk_unseen: ["new pairs", "新角度"],
    walk_costs: ["what it costs", "代价"],
    walk_cost_rope: ["breaks beyond training", "超出训练长度即失效"],
    walk_cost_pi: ["fine-tuning; neighbours crowd", "需要微调；相邻 token 变挤"],
    walk_cost_ntk: ["a part of its factor is lost", "达不到标称倍数"],
    walk_cost_yarn: ["short texts change too", "短文本也会改变"],
    walk_cost_streaming: ["forgets what left the window", "遗忘离开窗口的内容"],
    walk_cost_rerope: ["two rotations; far order is lost; few engines", "注意力要算两遍；远处不分先后；少有引擎支持"],
    walk_cost_self_extend: ["two rotations; far order is coarse; few engines", "注意力要算两遍；远处先后粗略；少有引擎支持"],
    choose: ["Two extensions, one model", "两个扩展，一个模型"],
    method: ["extension", "扩展"],
    model: ["Model", "模型"],
    model_summary: [
      "{name}trained on {trained} tokens · {dims} dimensions of a head rotate · base {base} · {heads} heads · {layers} layers{own}",
      "{name}训练长度 {trained} · 每头旋转 {dims} 维 · base {base} · {heads} 头 · {layers} 层{own}",
    ],
    usual_model: ["a usual Llama", "常见的 Llama"],
    read_texts: ["held-out texts: {texts} of {length} tokens", "{texts} 篇留出文本，各 {length} token"],
    own_schedule: [" · its own schedule: {type}", " · 自带频率方案：{type}"],
    another_model: ["Another model:", "换一个模型："],
    asking: ["The server draws it…", "服务器正在计算…"],
    not_here: [
      "This page does not hold that line. If the model takes it, this writes a page with it: {command}; or start ropewalk serve MODEL, whose page draws what you type.",
      "本页没有这个扩展。若写法有效，这样写入页面：{command}；或运行 ropewalk serve MODEL，其页面会画出你输入的内容。",
    ],
    drawn_instead: ["The figures above show {line} in its place.", "上面的图画的是 {line}。"],
    no_method: ["There is no method '{name}'.", "没有名为 '{name}' 的方法。"],
    no_method_close: ["There is no method '{name}'; did you mean '{close}'?", "没有名为 '{name}' 的方法；是否指 '{close}'？"],
    no_parameter: ["{name} has no parameter '{key}'; it takes {known}.", "{name} 没有参数 '{key}'；可用：{known}。"],
    no_parameter_close: [
      "{name} has no parameter '{key}'; did you mean '{close}'?",
      "{name} 没有参数 '{key}'；是否指 '{close}'？",
    ],
    no_parameters: ["{name} has no parameter '{key}': it takes none.", "{name} 没有参数 '{key}'：它不带参数。"],
    unreadable_line: ["Write a line as name:key=value,...+name...", "请按此格式书写：name:key=value,...+name..."],
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
    footer: ["Made by Ropewalk", "由 Ropewalk 生成，版本"],
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
    slowed_title: ["How much slower each pair rotates", "每对维度放慢的倍数"],
    slowed_axis: ["times slower", "放慢倍数"],
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
    no_warning: ["Nothing to warn about.", "无注意事项。"],

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
    base_model: ["base model", "原模型"],
    breaks: ["breaks at {place}, beside A and B", "与 A、B 相比，在 {place} 处失效"],
    breaks_short: ["base breaks", "原模型失效"],
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
    plain_model: ["A base model: it continues your text.", "基座模型：它会续写你的文本。"],
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
