// One queue: its numbers, consumers, bindings, arguments and messages, and everything that can be done with it.

import {
  html, Fragment, useState, useEffect, usePoll, Problem, Table, Badge, Plot, SpanChoice, historyOf, link, count, bytes, duration, useAction, Outcome, Field,
  fieldsOf, objectOf, Section, AskingButton, Facts, Empty, shown,
} from "../parts.js";
import { request, get, path } from "../api.js";
import { kindsOf } from "./queues.js";

const STATE_KINDS = { interested: "good", notified: "good", not_interested: "warning", browser: "plain" };

function Consumers({ queue }) {
  const consumers = queue.consumer_details ?? [];
  const all = consumers.reduce((sum, each) => sum + each.messages_delivered, 0);
  if (consumers.length === 0) return html`<${Empty}>No consumers.<//>`;
  const columns = [
    { title: "Consumer", show: (row) => row.consumer_tag || "(no tag)" },
    { title: "Connection", show: (row) => (row.channel_details?.connection_name ? html`<a href=${link("connection", row.channel_details.connection_name)}>${row.channel_details.name}</a>` : "") },
    { title: "User", show: (row) => row.user_who_performed_action },
    { title: "State", show: (row) => html`<${Badge} kind=${STATE_KINDS[row.state]}>${row.state.replace("_", " ")}<//>${row.active ? "" : html`<${Badge}>not served<//>`}${row.blocked_by.map((why) => html`<small>${why} </small>`)}` },
    { title: "Credit", numeric: true, show: (row) => (row.prefetch_count === 0 ? "no limit" : count(row.prefetch_count)) },
    { title: "Unacknowledged", numeric: true, show: (row) => count(row.messages_unacknowledged) },
    { title: "Delivered", numeric: true, show: (row) => count(row.messages_delivered) },
    { title: "Share", numeric: true, show: (row) => (all ? `${Math.round((100 * row.messages_delivered) / all)} %` : "") },
    { title: "Priority", numeric: true, show: (row) => row.priority },
    { title: "Settings", show: (row) => html`${row.ack_required ? "" : html`<${Badge}>no acknowledgements<//>`}${row.exclusive ? html`<${Badge}>exclusive<//>` : ""}${row.selector ? html`<code>${row.selector}</code>` : ""}${Object.entries(row.arguments).map(([name, value]) => html`<${Badge}>${name}: ${shown(value)}<//>`)}` },
  ];
  return html`<${Table} caption="Consumers" columns=${columns} rows=${consumers} keyOf=${(row) => `${row.channel_details?.name}/${row.consumer_tag}`} />`;
}

const LINE = 34;

/** The bindings as a drawing: exchanges at the left, the queue at the right. The table below has the same. */
function Drawing({ bindings, name }) {
  const sources = [...new Set(bindings.map((each) => each.source))].slice(0, 12);
  if (sources.length === 0) return null;
  const height = Math.max(2, sources.length) * LINE + 10;
  const middle = height / 2;
  const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
  return html`<svg class="drawing" viewBox=${`0 0 720 ${height}`} role="img" aria-label=${`Bindings of queue ${name} from ${sources.map((each) => each || "the default exchange").join(", ")}`}>
    ${sources.map((source, place) => {
      const y = place * LINE + LINE / 2 + 5;
      const keys = bindings.filter((each) => each.source === source).map((each) => each.routing_key);
      return html`<path d=${`M 220 ${y} C 340 ${y}, 380 ${middle}, 500 ${middle}`} /><rect x="5" y=${y - 13} width="215" height="26" rx="6" /><text x="14" y=${y + 4}>${cut(source || "(default exchange)", 28)}</text><text x="232" y=${y - 4}>${cut(keys.join(", "), 30)}</text>`;
    })}
    <rect x="500" y=${middle - 15} width="215" height="30" rx="6" /><text x="510" y=${middle + 4}>${cut(name, 28)}</text>
  </svg>`;
}

function Bindings({ vhost, name }) {
  const [bindings, error, again] = usePoll(`queues/${path(vhost, name)}/bindings`, 15);
  const [exchanges] = usePoll(`exchanges/${path(vhost)}?columns=name`, 60);
  const [busy, problem, done, run] = useAction();
  const add = (event) => {
    event.preventDefault();
    const fields = fieldsOf(event.target);
    run(async () => {
      await request("POST", `bindings/${path(vhost, "e", fields.source, "q", name)}`, { routing_key: fields.routing_key ?? "", arguments: objectOf(fields.arguments, "Arguments") });
      again();
      return "Bound.";
    });
  };
  const columns = [
    { title: "From", show: (row) => (row.source ? html`<a href=${link("exchange", vhost, row.source)}>${row.source}</a>` : "(default exchange)") },
    { title: "Routing key", show: (row) => html`<code>${row.routing_key}</code>` },
    { title: "Arguments", show: (row) => (Object.keys(row.arguments).length ? html`<code>${JSON.stringify(row.arguments)}</code>` : "") },
    { title: "", show: (row) => (row.source ? html`<${AskingButton} label="Unbind" title=${`Unbind from ${row.source}?`} act=${() => request("DELETE", `bindings/${path(vhost, "e", row.source, "q", name, row.properties_key)}`)} after=${again}><p>Messages with the key <code>${row.routing_key}</code> of this exchange no longer come into the queue.</p><//>` : "") },
  ];
  return html`<${Problem} error=${error} />${bindings ? html`<${Drawing} bindings=${bindings} name=${name} /><${Table} caption="Bindings" columns=${columns} rows=${bindings} keyOf=${(row) => `${row.source}/${row.properties_key}`} />` : ""}
    <form class="fields" onSubmit=${add}><${Field} label="Bind from exchange"><select name="source">${(exchanges ?? []).filter((each) => each.name).map((each) => html`<option>${each.name}</option>`)}</select><//>
      <${Field} label="Routing key"><input name="routing_key" /><//><${Field} label="Arguments" hint="JSON"><input name="arguments" /><//>
      <div><button type="submit" disabled=${busy}>Bind</button></div><div class="wide"><${Outcome} error=${problem} done=${done} /></div></form>`;
}

function Effective({ vhost, name }) {
  const [effective, error] = usePoll(`queues/${path(vhost, name)}/effective`, 15);
  const rows = Object.entries(effective ?? {});
  const origin = (source) => `${source.kind} ${source.name}`;
  const columns = [
    { title: "Argument", show: ([key]) => html`<code>${key}</code>` },
    { title: "Value", show: ([, entry]) => shown(entry.value) },
    { title: "Origin", show: ([, entry]) => (entry.source ? origin(entry.source) : "") },
    { title: "Overrides", show: ([, entry]) => (entry.overrides ?? []).map((each) => `${origin(each.source ?? each)}: ${shown(each.value)}`).join(", ") },
  ];
  return html`<${Problem} error=${error} />${effective ? (rows.length ? html`<${Table} caption="Effective arguments" columns=${columns} rows=${rows} keyOf=${([key]) => key} />` : html`<${Empty}>Neither the declaration nor a policy sets anything.<//>`) : ""}`;
}

function bodyAs(message, form) {
  const raw = message.payload_encoding === "base64" ? Uint8Array.from(atob(message.payload), (each) => each.charCodeAt(0)) : new TextEncoder().encode(message.payload);
  if (form === "hex") {
    const lines = [];
    for (let at = 0; at < Math.min(raw.length, 4096); at += 16) {
      const part = [...raw.slice(at, at + 16)];
      lines.push(`${at.toString(16).padStart(6, "0")}  ${part.map((each) => each.toString(16).padStart(2, "0")).join(" ").padEnd(48)} ${part.map((each) => (each > 31 && each < 127 ? String.fromCharCode(each) : ".")).join("")}`);
    }
    return lines.join("\n");
  }
  const text = new TextDecoder().decode(raw);
  if (form === "json") {
    try {
      return JSON.stringify(JSON.parse(text), null, 2);
    } catch {
      return text;
    }
  }
  return text;
}

function Message({ message, form, chosen, onChoose }) {
  const properties = Object.entries(message.properties ?? {}).filter(([name]) => name !== "headers");
  const headers = Object.entries(message.properties?.headers ?? {});
  const cutShort = message.payload_bytes > (message.payload_encoding === "base64" ? atob(message.payload).length : new TextEncoder().encode(message.payload).length);
  return html`<article class="panel"><div class="actions"><label class="check"><input type="checkbox" checked=${chosen} onChange=${(event) => onChoose(message.id, event.target.checked)} disabled=${!message.id} /> ${message.place + 1}</label>
    <${Badge}>${message.state}<//>${message.redelivered ? html`<${Badge} kind="warning">redelivered<//>` : ""}<span>${bytes(message.payload_bytes)}</span>
    <span>from ${message.exchange || "the default exchange"} with key <code>${message.routing_key}</code></span></div>
    ${properties.length + headers.length ? html`<${Facts} facts=${[...properties.map(([name, value]) => [name, shown(value)]), ...headers.map(([name, value]) => [html`header ${name}`, shown(value)])]} />` : ""}
    <pre tabindex="0" aria-label="Body">${bodyAs(message, form)}</pre>${cutShort ? html`<small>The body is longer than what is shown.</small>` : ""}</article>`;
}

function Destination({ vhost }) {
  return html`<${Field} label="To queue"><input name="queue" /><//><${Field} label="or exchange"><input name="exchange" /><//><${Field} label="with routing key"><input name="routing_key" /><//>`;
}

function targetOf(fields) {
  if (fields.queue) return { queue: fields.queue };
  if (fields.exchange) return { exchange: fields.exchange, routing_key: fields.routing_key ?? "" };
  throw new Error("Name a queue, or an exchange with a routing key.");
}

function Messages({ vhost, name, isStream }) {
  const [state, setState] = useState({ messages: null, next: null });
  const [form, setForm] = useState("text");
  const [chosen, setChosen] = useState(() => new Set());
  const [selector, setSelector] = useState("");
  const [busy, error, done, run] = useAction();
  const base = `queues/${path(vhost, name)}/messages`;
  const load = (from) => run(async () => {
    const query = new URLSearchParams({ count: 20, truncate: 5000, from });
    if (selector) query.set("selector", selector);
    const found = await get(`${base}?${query}`);
    setState((before) => ({ messages: from === "0" ? found.messages : [...before.messages, ...found.messages], next: found.next }));
    if (from === "0") setChosen(new Set());
  });
  const choose = (id, on) => setChosen((before) => { const after = new Set(before); if (on) after.add(id); else after.delete(id); return after; });
  const which = () => (chosen.size ? { ids: [...chosen] } : selector ? { selector } : { all: true });
  const words = chosen.size ? `${chosen.size} chosen messages` : selector ? "all messages that the selector matches" : "all ready messages";
  const operate = (what, more) => async () => {
    const answer = await request("POST", `${base}/${what}`, { ...which(), ...more });
    await load("0");
    return `${count(answer.done)} messages: ${what}.${answer.more ? " There are more." : ""}`;
  };
  const send = (what) => (event) => {
    event.preventDefault();
    const fields = fieldsOf(event.target);
    run(async () => operate(what, { to: targetOf(fields) })());
  };
  return html`<p class="empty">Messages are shown as they are in the queue: nothing is taken, requeued or marked.</p>
    <form class="actions" onSubmit=${(event) => { event.preventDefault(); load("0"); }}>
      <label>Selector <input value=${selector} onInput=${(event) => setSelector(event.target.value)} placeholder="priority > 5 AND region = 'eu'" size="40" /></label>
      <button type="submit" disabled=${busy}>Look</button>
      <label>Bodies as <select value=${form} onChange=${(event) => setForm(event.target.value)}><option>text</option><option>json</option><option>hex</option></select></label>
    </form><${Outcome} error=${error} done=${done} />
    ${state.messages === null ? "" : html`${state.messages.length === 0 ? html`<${Empty}>No such messages.<//>` : ""}
      ${state.messages.map((each) => html`<${Message} key=${each.id ?? each.place} message=${each} form=${form} chosen=${chosen.has(each.id)} onChoose=${choose} />`)}
      ${state.next ? html`<button type="button" disabled=${busy} onClick=${() => load(state.next)}>More</button>` : ""}`}
    <h3>Operations on ${words}</h3>
    ${isStream ? "" : html`<div class="actions">
      <${AskingButton} label="Delete" title=${`Delete ${words}?`} act=${async () => { await operate("delete", {})(); }}><p>They are deleted and not dead-lettered.</p><//>
      <${AskingButton} label="Redrive" kind="plain" title=${`Return ${words} to where they died first?`} act=${async () => { await operate("redrive", {})(); }}><p>Dead letters go back to the queue in which they died first, as they were published. Other messages stay.</p><//></div>`}
    <form class="fields" onSubmit=${send("copy")}><${Destination} vhost=${vhost} /><div class="actions"><button type="submit" disabled=${busy}>Copy</button>
      ${isStream ? "" : html`<button type="button" disabled=${busy} onClick=${(event) => { const fields = fieldsOf(event.target.form); run(async () => operate("move", { to: targetOf(fields) })()); }}>Move</button>`}</div></form>
    ${isStream ? "" : html`<${Edit} operate=${operate} run=${run} busy=${busy} words=${words} />`}`;
}

function Edit({ operate, run, busy, words }) {
  const submit = (event) => {
    event.preventDefault();
    const fields = fieldsOf(event.target);
    run(async () => {
      const more = { properties: objectOf(fields.properties, "Properties") };
      if (fields.replaces) more.payload = fields.payload ?? "";
      return operate("edit", more)();
    });
  };
  return html`<details><summary>Edit ${words}</summary><form class="fields" onSubmit=${submit}>
    <label class="field wide"><span>Properties<small>JSON; null removes one; "headers" has the headers</small></span><textarea name="properties" placeholder='{"priority": 5, "headers": {"region": "eu", "old": null}}'></textarea></label>
    <label class="check"><input type="checkbox" name="replaces" /> replace the body</label>
    <label class="field wide"><span>Body</span><textarea name="payload"></textarea></label>
    <div><button type="submit" disabled=${busy}>Edit</button></div></form></details>`;
}

function Publish({ vhost, name }) {
  const [busy, error, done, run] = useAction();
  const submit = (event) => {
    event.preventDefault();
    const fields = fieldsOf(event.target);
    run(async () => {
      const properties = objectOf(fields.properties, "Properties");
      if (fields.persistent) properties.delivery_mode = 2;
      const answer = await request("POST", `exchanges/${path(vhost, "amq.default")}/publish`, { routing_key: name, properties, payload: fields.payload ?? "", payload_encoding: "string" });
      return answer.routed ? "Published." : "No queue took the message.";
    });
  };
  return html`<form class="fields" onSubmit=${submit}><label class="field wide"><span>Body</span><textarea name="payload"></textarea></label>
    <label class="field wide"><span>Properties<small>JSON, with "headers"</small></span><textarea name="properties"></textarea></label>
    <label class="check"><input type="checkbox" name="persistent" checked /> persistent</label><div><button type="submit" disabled=${busy}>Publish</button></div>
    <div class="wide"><${Outcome} error=${error} done=${done} /></div></form>`;
}

function Alter({ vhost, name, queue }) {
  const [busy, error, done, run] = useAction();
  const submit = (event) => {
    event.preventDefault();
    const fields = fieldsOf(event.target);
    run(async () => {
      await request("PATCH", `queues/${path(vhost, name)}`, { arguments: objectOf(fields.arguments, "Arguments") });
      return "Altered.";
    });
  };
  return html`<form class="fields" onSubmit=${submit}><label class="field wide"><span>Arguments to change<small>JSON; null removes one</small></span><textarea name="arguments" placeholder=${JSON.stringify(queue.arguments)}></textarea></label>
    <div><button type="submit" disabled=${busy}>Alter</button></div><div class="wide"><${Outcome} error=${error} done=${done} /></div></form>`;
}

/** The messages, bindings and consumers that a deletion takes along, shown before it happens. */
function Dependents({ vhost, name, queue }) {
  const [bindings] = usePoll(`queues/${path(vhost, name)}/bindings`, 0);
  const bound = (bindings ?? []).filter((each) => each.source);
  return html`<ul><li>${count(queue.messages)} messages are lost${queue.messages_delayed ? `, and ${count(queue.messages_delayed)} delayed ones` : ""}</li><li>${count(queue.consumers)} consumers are cancelled</li>
    <li>${bindings === null ? "…" : `${bound.length} bindings are removed`}${bound.length ? `: from ${[...new Set(bound.map((each) => each.source))].slice(0, 5).join(", ")}` : ""}</li></ul>`;
}

function Danger({ vhost, name, queue, again }) {
  const where = `queues/${path(vhost, name)}`;
  const stopped = new Set(queue.stopped ?? []);
  const [, error, done, run] = useAction();
  const act = (action) => run(async () => { await request("POST", `${where}/actions`, { action }); again(); }, "Done.");
  return html`<div class="actions">
    ${["enqueue", "dequeue"].map((operation) => html`<button type="button" onClick=${() => act(`${stopped.has(operation) ? "start" : "stop"}-${operation}`)}>${stopped.has(operation) ? "Start" : "Stop"} ${operation}</button>`)}
    ${queue.type === "stream" ? "" : html`<${AskingButton} label="Purge" title=${`Purge queue ${name}?`} act=${() => request("DELETE", `${where}/contents`)} after=${again}><p>${count(queue.messages_ready)} ready messages are deleted and not dead-lettered. Unacknowledged messages stay.</p><//>`}
    <${AskingButton} label="Delete" title=${`Delete queue ${name}?`} expected=${name} act=${() => request("DELETE", where)} after=${() => { location.hash = link("queues"); }}><${Dependents} vhost=${vhost} name=${name} queue=${queue} /><//>
  </div><${Outcome} error=${error} done=${done} />`;
}

export function Queue({ parts }) {
  const [vhost, name] = parts;
  const [span, setSpan] = useState("minute");
  const [queue, error, again] = usePoll(`queues/${path(vhost, name)}?${historyOf(span, ["lengths", "msg_rates"])}`);
  const stats = queue?.message_stats ?? {};
  return html`<h1 tabindex="-1">Queue ${name}</h1><${Problem} error=${error} />${queue ? html`
    <p>${kindsOf(queue).map((kind) => html`<${Badge}>${kind}<//>`)}${(queue.stopped ?? []).map((each) => html`<${Badge} kind="danger">${each} stopped<//>`)} in virtual host ${vhost}</p>
    <dl class="tiles">${[
      ["Ready", count(queue.messages_ready)], ["Unacknowledged", count(queue.messages_unacknowledged)],
      ...[["Waiting for a retry", queue.messages_held], ["Delayed", queue.messages_delayed], ["Waiting to be dead-lettered", queue.messages_dlx]].filter(([, number]) => number).map(([title, number]) => [title, count(number)]),
      ["Bodies", bytes(queue.message_bytes)], ["First message", queue.messages ? duration(queue.head_message_age) : "–"], ["Consumers", count(queue.consumers)],
      ["Capacity of consumers", queue.consumers ? `${Math.round(100 * queue.consumer_capacity)} %` : "–"],
    ].map(([title, value]) => html`<div><dt>${title}</dt><dd>${value}</dd></div>`)}</dl>
    <${SpanChoice} span=${span} onChange=${setSpan} names=${["minute", "hour"]} />
    <div class="plots"><${Plot} key=${`d${span}`} title="Messages" lines=${[{ title: "ready", details: queue.messages_ready_details }, { title: "unacknowledged", details: queue.messages_unacknowledged_details }]} />
      <${Plot} key=${`r${span}`} title="Messages a second" lines=${[{ title: "in", details: stats.publish_details, isRate: true }, { title: "out", details: stats.deliver_get_details, isRate: true }, { title: "acknowledged", details: stats.ack_details, isRate: true }]} /></div>
    <${Section} title=${`Consumers (${count(queue.consumers)})`} open=${true}><${Consumers} queue=${queue} /><//>
    <${Section} title="Messages"><${Messages} vhost=${vhost} name=${name} isStream=${queue.type === "stream"} /><//>
    <${Section} title="Publish a message"><${Publish} vhost=${vhost} name=${name} /><//>
    <${Section} title="Bindings"><${Bindings} vhost=${vhost} name=${name} /><//>
    <${Section} title="Arguments and policies"><${Facts} facts=${Object.entries(queue.arguments).map(([key, value]) => [key, shown(value)])} /><${Effective} vhost=${vhost} name=${name} /><h3>Alter</h3><${Alter} vhost=${vhost} name=${name} queue=${queue} /><//>
    <${Section} title="Stop, purge, delete"><${Danger} vhost=${vhost} name=${name} queue=${queue} again=${again} /><//>` : ""}`;
}
