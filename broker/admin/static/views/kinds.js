// Streams with their readers, delayed messages, and dead letters by queue and reason.

import { html, usePoll, usePagedList, Pages, Problem, Table, Badge, Section, link, count, bytes, duration, rate, Empty, AskingButton } from "../parts.js";
import { request, path } from "../api.js";
import { VhostChoice } from "./queues.js";

/** The queues of a kind in the chosen virtual host, or in all of them, a page at a time. */
function useQueues(query, having, columns) {
  const vhost = query.get("vhost");
  return usePagedList(vhost ? `queues/${path(vhost)}` : "queues", { having, columns, sort: "name", seconds: 10 });
}

const keyOf = (row) => `${row.vhost}/${row.name}`;

export function Streams({ query }) {
  const vhost = query.get("vhost");
  const { data, error } = useQueues(query, "stream", "name,vhost,messages,message_bytes,partitions,consumers,arguments,effective_policy_definition");
  const [readers] = usePoll(vhost ? `readers/${path(vhost)}` : "readers", 10);
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
    { title: "Virtual host", show: (row) => row.vhost },
    { title: "User", show: (row) => row.user },
    { title: "Lag", numeric: true, show: (row) => count(row.lag) },
    { title: "Last report", numeric: true, show: (row) => duration(row.age) },
    { title: "Partitions", show: (row) => row.partitions.map((each) => html`<div>${each.queue} ${each.partition}: ${count(each.next)} of ${count(each.end)}</div>`) },
  ];
  return html`<h1 tabindex="-1">Streams</h1><div class="actions"><${VhostChoice} query=${query} /></div><${Problem} error=${error} />
    ${data ? (data.items.length ? html`<${Table} caption="Streams" columns=${columns} rows=${data.items} keyOf=${keyOf} /><${Pages} data=${data} />` : html`<${Empty}>No streams.<//>`) : ""}
    <h2>Readers that report their progress</h2>${readers && readers.length ? html`<${Table} caption="Readers" columns=${readerColumns} rows=${readers} keyOf=${keyOf} />` : html`<${Empty}>None.<//>`}`;
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
  const { data, error, again } = useQueues(query, "delayed", "name,vhost,messages_delayed");
  return html`<h1 tabindex="-1">Delayed messages</h1><div class="actions"><${VhostChoice} query=${query} /></div><${Problem} error=${error} />
    ${data && data.items.length === 0 ? html`<${Empty}>No message is delayed.<//>` : ""}
    ${(data?.items ?? []).map((each) => html`<${Section} key=${keyOf(each)} title=${`${each.name} (${count(each.messages_delayed)})`}><${DelayedOf} vhost=${each.vhost} name=${each.name} again=${again} /><//>`)}<${Pages} data=${data} />`;
}

export function DeadLetters({ query }) {
  const { data, error } = useQueues(query, "dead-letters", "name,vhost,messages_dlx,messages_dlx_details,dead_letter_strategy,effective_policy_definition,arguments");
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
    ${data ? (data.items.length ? html`<${Table} caption="Queues that dead-letter" columns=${columns} rows=${data.items} keyOf=${keyOf} /><${Pages} data=${data} />` : html`<${Empty}>No queue dead-letters.<//>`) : ""}`;
}
