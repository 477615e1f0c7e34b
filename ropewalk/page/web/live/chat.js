// A chat with both models side by side: the same words to both, each answer as it comes.
"use strict";
Ropewalk.chat = (() => {
  const { make, byId, fill } = Ropewalk.dom;
  const { t } = Ropewalk.words;
  const TOKENS = 256;
  const said = { a: [], b: [] }; // [{role, content}] of each side
  let live = null,
    typed = "",
    running = null;

  // The panel, built anew from what was said so far.
  function part(state) {
    live = state;
    const area = make("textarea", { id: "message", rows: 2, "aria-label": t("message"), placeholder: t("message") });
    area.value = typed;
    area.addEventListener("input", () => (typed = area.value));
    area.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      send();
    });
    const button = make(
      "button",
      { type: "button", id: "send", onclick: () => (running ? running.abort() : send()) },
      t(running ? "stop" : "send"),
    );
    const clear = make(
      "button",
      { type: "button", class: "quiet", onclick: () => (forget("a"), forget("b")) },
      t("clear"),
    );
    const plain = ["a", "b"].some((side) => !live.models[side].ropewalk.chat);
    const columns = make("div", { class: "two" }, ["a", "b"].map(column));
    const said = plain ? [make("p", {}, t("plain_model"))] : [];
    return Ropewalk.panel.part("chat", ...said, columns, make("div", { class: "send" }, area, button, clear));
  }

  function column(side) {
    const log = make("div", {
      class: "chat",
      id: `chat-${side}`,
      role: "log",
      tabindex: 0,
      "aria-label": `${side.toUpperCase()}: ${t("chat")}`,
    });
    log.append(...said[side].map(({ role, content }) => line(role, content)));
    const heading = make("h3", {}, Ropewalk.panel.badge(side), " ", live.models[side].id);
    return make("div", { class: `cell side-${side}` }, heading, log);
  }

  const line = (role, content) => make("p", { class: role === "user" ? "you" : "model" }, content);

  async function send() {
    const content = typed.trim();
    if (!content || running) return;
    running = new AbortController();
    typed = byId("message").value = "";
    byId("send").textContent = t("stop");
    await Promise.all(["a", "b"].map((side) => answer(side, content, running.signal)));
    running = null;
    byId("send").textContent = t("send");
  }

  // What one side says; an error stands where the answer would.
  async function answer(side, content, signal) {
    const history = said[side],
      reply = { role: "assistant", content: "" };
    history.push({ role: "user", content });
    const request = requestOf(live.models[side], history);
    history.push(reply);
    add(side, line("user", content), line("assistant", ""));
    try {
      for await (const part of Ropewalk.server.stream(...request, signal)) {
        const choice = part.choices?.[0];
        reply.content += choice?.delta?.content ?? choice?.text ?? "";
        showLast(side, reply.content);
      }
    } catch (refused) {
      if (refused.name === "AbortError") return;
      history.splice(-2);
      showLast(side, refused instanceof Ropewalk.Refusal ? refused.message : t("strange"), "said wrong");
    }
  }

  // A model with a chat template gets messages; another continues the text so far.
  function requestOf({ id, ropewalk }, history) {
    // Without chance: else two answers of one model differ too.
    const body = { model: id, max_tokens: TOKENS, temperature: 0 };
    if (ropewalk.chat)
      return ["v1/chat/completions", { ...body, messages: history.map((message) => ({ ...message })) }];
    return ["v1/completions", { ...body, prompt: history.map((message) => message.content).join("") }];
  }

  function add(side, ...lines) {
    const log = byId(`chat-${side}`);
    log.append(...lines);
    log.scrollTop = log.scrollHeight;
  }

  function showLast(side, text, kind = "model") {
    const log = byId(`chat-${side}`),
      end = log?.lastElementChild;
    if (!end) return;
    end.textContent = text;
    end.className = kind;
    log.scrollTop = log.scrollHeight;
  }

  function forget(side) {
    said[side] = [];
    const log = byId(`chat-${side}`);
    if (log) fill(log);
  }

  return { part, forget };
})();
