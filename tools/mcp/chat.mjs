// A stock client of POST /v1/chat/{agent}: chat.mjs PACKAGE API TOKEN STEP… says, approves and denies, one step after the other, and
// prints what the user sees. Each step is say:TEXT, approve:REASON or deny:REASON.
const [name, api, token, ...steps] = process.argv.slice(2);
const { AbstractChat, DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses } = await import(name);

const live = []; // the lengths of the newest text, as they came
class State { // what a library of a user interface keeps for it
  status = "ready"; error; messages = [];
  pushMessage = (m) => { this.messages = this.messages.concat(structuredClone(m)); };
  popMessage = () => { this.messages = this.messages.slice(0, -1); };
  replaceMessage = (i, m) => {
    this.messages = this.messages.map((old, at) => (at === i ? structuredClone(m) : old));
    live.push(m.parts.filter((p) => p.type === "text").at(-1)?.text ?? "");
  };
  snapshot = (x) => structuredClone(x);
}
class Chat extends AbstractChat {
  constructor(o) { super({ ...o, state: new State() }); }
}

const errors = [];
const chat = new Chat({
  id: "stock",
  transport: new DefaultChatTransport({ api, headers: { Authorization: `Bearer ${token}` } }),
  // as docs/api.md says, and as the package itself does
  sendAutomaticallyWhen: name === "ai" ? ({ messages: m }) => m.at(-1).parts.some((p) => p.state === "approval-responded") : lastAssistantMessageIsCompleteWithApprovalResponses,
  onError: (e) => errors.push(String(e)),
});
for (const step of steps) {
  const [what, text] = step.split(":");
  if (what === "say") await chat.sendMessage({ text });
  else {
    const { approval } = chat.messages.at(-1).parts.find((p) => p.state === "approval-requested");
    await chat.addToolApprovalResponse({ id: approval.id, approved: what === "approve", reason: text });
    await new Promise((r) => setTimeout(r, 50)); // it is sent by itself
  }
  while (!["ready", "error"].includes(chat.status)) await new Promise((r) => setTimeout(r, 20));
}
const shown = chat.messages.map((m) => m.role + ": " + m.parts.map((p) => p.text ?? (p.state ? `${p.toolName} ${p.state}` : p.type)).join(", "));
console.log(JSON.stringify({ errors, shown, live }));
