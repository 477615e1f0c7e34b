// The server behind the page, if there is one: its models, and requests to it. Addresses are relative to the page's.
"use strict";
Ropewalk.server = (() => {
  const STORED = "ropewalk.key"; // in this tab alone
  const key = () => sessionStorage.getItem(STORED) ?? "";
  const keep = (value) => (value ? sessionStorage.setItem(STORED, value) : sessionStorage.removeItem(STORED));
  const isFile = () => location.protocol === "file:";

  const headers = () => ({ "Content-Type": "application/json", ...(key() && { Authorization: `Bearer ${key()}` }) });

  // {models} where a server answers, {locked: true} where it wants a key, null where there is none.
  async function find() {
    if (isFile()) return null;
    try {
      const answer = await fetch("v1/models", { headers: headers() });
      if (answer.status === 401 || answer.status === 403) return { locked: true };
      const { data } = await answer.json();
      const models = Array.isArray(data) ? data.filter((model) => model?.ropewalk && typeof model.id === "string") : [];
      return models.length ? { models } : null;
    } catch {
      return null;
    }
  }

  async function post(path, body, signal) {
    let answer;
    try {
      answer = await fetch(path, { method: "POST", headers: headers(), body: JSON.stringify(body), signal });
    } catch (reason) {
      if (reason.name === "AbortError") throw reason;
      throw new Ropewalk.Refusal(Ropewalk.words.t("unreachable"));
    }
    if (!answer.ok) throw new Ropewalk.Refusal(Ropewalk.words.t("failed", { message: await message(answer) }));
    return answer;
  }

  async function message(answer) {
    try {
      const { error, detail } = await answer.json();
      return String(error?.message ?? detail ?? answer.status);
    } catch {
      return String(answer.status);
    }
  }

  // The parts of a streamed answer, as they come: data: {...}, and [DONE] at the end.
  async function* stream(path, body, signal) {
    const answer = await post(path, { ...body, stream: true }, signal);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let kept = "";
    for (;;) {
      const { value, done } = await reader.read().catch(broken);
      const lines = (kept + (value ?? "")).split(/\r?\n/);
      kept = done ? "" : lines.pop();
      for (const line of lines) {
        if (!line.startsWith("data:")) continue;
        const data = line.slice(5).trim();
        if (data === "[DONE]") return;
        const part = read(data);
        if (part.error) throw new Ropewalk.Refusal(Ropewalk.words.t("failed", { message: String(part.error.message) }));
        yield part;
      }
      if (done) return;
    }
  }

  // A connection that ends in the middle; what the reader stopped is no error of the server's.
  function broken(reason) {
    throw reason.name === "AbortError" ? reason : new Ropewalk.Refusal(Ropewalk.words.t("unreachable"));
  }

  function read(text) {
    try {
      return JSON.parse(text);
    } catch {
      throw new Ropewalk.Refusal(Ropewalk.words.t("strange"));
    }
  }

  const json = async (path, body, signal) => (await post(path, body, signal)).json();
  return { find, json, stream, keep, isFile };
})();
