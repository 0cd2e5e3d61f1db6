// Streams with their readers, delayed messages, and dead letters by queue and reason.

import { html, usePoll, Problem, Table, Badge, Section, link, count, bytes, duration, rate, Empty, AskingButton } from "../parts.js";
import { request, path } from "../api.js";
import { VhostChoice } from "./queues.js";

const useVhost = (query) => query.get("vhost") || "/";

export function Streams({ query }) {
  const vhost = useVhost(query);
  const [queues, error] = usePoll(`queues/${path(vhost)}?columns=name,vhost,type,messages,message_bytes,partitions,consumers,arguments,effective_policy_definition`, 10);
  const [readers] = usePoll(`readers/${path(vhost)}`, 10);
  const streams = (queues ?? []).filter((each) => each.type === "stream");
  const columns = [
    { title: "Stream", show: (row) => html`<a href=${link("queue", row.vhost, row.name)}>${row.name}</a>` },
    { title: "Messages", numeric: true, show: (row) => count(row.messages) },
    { title: "On disk", numeric: true, show: (row) => bytes(row.message_bytes) },
    { title: "Offsets", show: (row) => (row.partitions ?? []).map((each) => html`<div>${row.partitions.length > 1 ? `partition ${each.partition}: ` : ""}${count(each.first)} to ${count(each.next - 1)}</div>`) },
    { title: "Retention", show: (row) => ["x-max-age", "x-max-length-bytes"].map((name) => row.effective_policy_definition?.[name.slice(2)] ?? row.arguments?.[name]).filter(Boolean).join(", ") || "everything" },
    { title: "Consumers", numeric: true, show: (row) => count(row.consumers) },
  ];
  const readerColumns = [
    { title: "Reader", show: (row) => row.name },
    { title: "User", show: (row) => row.user },
    { title: "Lag", numeric: true, show: (row) => count(row.lag) },
    { title: "Last report", numeric: true, show: (row) => duration(row.age) },
    { title: "Partitions", show: (row) => row.partitions.map((each) => html`<div>${each.queue} ${each.partition}: ${count(each.next)} of ${count(each.end)}</div>`) },
  ];
  return html`<h1 tabindex="-1">Streams</h1><div class="actions"><${VhostChoice} query=${query} /></div><${Problem} error=${error} />
    ${queues ? (streams.length ? html`<${Table} caption="Streams" columns=${columns} rows=${streams} keyOf=${(row) => row.name} />` : html`<${Empty}>No streams in virtual host ${vhost}.<//>`) : ""}
    <h2>Readers that report their progress</h2>${readers && readers.length ? html`<${Table} caption="Readers" columns=${readerColumns} rows=${readers} keyOf=${(row) => row.name} />` : html`<${Empty}>None.<//>`}`;
}

function DelayedOf({ vhost, name, again }) {
  const [data, error, more] = usePoll(`queues/${path(vhost, name)}/delayed?page=1&page_size=100`, 5);
  const columns = [
    { title: "Due", show: (row) => new Date(row.delivery_time).toLocaleString() },
    { title: "Key", show: (row) => html`<code>${row.routing_key}</code>` },
    { title: "Size", numeric: true, show: (row) => bytes(row.payload_bytes) },
    { title: "", show: (row) => html`<${AskingButton} label="Delete" title="Delete this delayed message?" act=${() => request("DELETE", `queues/${path(vhost, name)}/delayed/${path(row.id)}`)} after=${() => { more(); again(); }} />` },
  ];
  return html`<${Problem} error=${error} />${data ? html`<${Table} caption=${`Delayed messages of ${name}`} columns=${columns} rows=${data.items} keyOf=${(row) => row.id} />` : ""}`;
}

export function Delayed({ query }) {
  const vhost = useVhost(query);
  const [queues, error, again] = usePoll(`queues/${path(vhost)}?columns=name,messages_delayed`, 10);
  const having = (queues ?? []).filter((each) => each.messages_delayed > 0);
  return html`<h1 tabindex="-1">Delayed messages</h1><div class="actions"><${VhostChoice} query=${query} /></div><${Problem} error=${error} />
    ${queues && having.length === 0 ? html`<${Empty}>No message is delayed in virtual host ${vhost}.<//>` : ""}
    ${having.map((each) => html`<${Section} key=${each.name} title=${`${each.name} (${count(each.messages_delayed)})`}><${DelayedOf} vhost=${vhost} name=${each.name} again=${again} /><//>`)}`;
}

export function DeadLetters({ query }) {
  const vhost = useVhost(query);
  const [queues, error] = usePoll(`queues/${path(vhost)}?columns=name,vhost,messages_dlx,messages_dlx_details,dead_letter_strategy,effective_policy_definition,arguments,messages`, 10);
  const dead = (queues ?? []).filter((each) => each.messages_dlx > 0 || each.dead_letter_strategy);
  const columns = [
    { title: "Queue", show: (row) => html`<a href=${link("queue", row.vhost, row.name)}>${row.name}</a>` },
    { title: "Strategy", show: (row) => row.dead_letter_strategy ?? "" },
    { title: "To exchange", show: (row) => row.effective_policy_definition?.["dead-letter-exchange"] ?? row.arguments?.["x-dead-letter-exchange"] ?? "" },
    { title: "With key", show: (row) => row.effective_policy_definition?.["dead-letter-routing-key"] ?? row.arguments?.["x-dead-letter-routing-key"] ?? "(the message's own)" },
    { title: "Waiting", numeric: true, show: (row) => html`${row.messages_dlx ? html`<${Badge} kind="danger">${count(row.messages_dlx)}<//>` : "0"}` },
    { title: "Change", numeric: true, show: (row) => rate(row.messages_dlx_details?.rate ?? 0) },
  ];
  return html`<h1 tabindex="-1">Dead letters</h1><div class="actions"><${VhostChoice} query=${query} /></div><${Problem} error=${error} />
    <p class="empty">Queues that dead-letter, and the messages in them that wait until a queue takes them. A queue's own page lists these messages (state dead-letter) and redrives dead letters.</p>
    ${queues ? (dead.length ? html`<${Table} caption="Queues that dead-letter" columns=${columns} rows=${dead} keyOf=${(row) => row.name} />` : html`<${Empty}>No queue in virtual host ${vhost} dead-letters.<//>`) : ""}`;
}
