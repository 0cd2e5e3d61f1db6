// Connections with their channels or sessions; an operator closes one with a reason.

import { html, useState, usePoll, Problem, Table, Badge, Search, Pages, Plot, historyOf, usePagedList, link, count, bytes, rate, rateOf, Facts, Section, AskingButton, Empty, shown } from "../parts.js";
import { request, path } from "../api.js";

const COLUMNS = [
  { title: "Connection", sort: "name", show: (row) => html`<a href=${link("connection", row.name)}>${row.user_provided_name || row.client_properties?.connection_name || row.name}</a>` },
  { title: "User", sort: "user", show: (row) => row.user },
  { title: "Virtual host", sort: "vhost", show: (row) => row.vhost },
  { title: "Protocol", sort: "protocol", show: (row) => html`${row.protocol}${row.ssl ? html` <${Badge} kind="good">TLS<//>` : ""}` },
  { title: "State", sort: "state", show: (row) => html`<${Badge} kind=${row.state === "running" ? "good" : "warning"}>${row.state}<//>` },
  { title: "Channels", sort: "channels", numeric: true, show: (row) => count(row.channels) },
  { title: "In", sort: "recv_oct_details.rate", numeric: true, show: (row) => `${bytes(row.recv_oct_details?.rate ?? 0)}/s` },
  { title: "Out", sort: "send_oct_details.rate", numeric: true, show: (row) => `${bytes(row.send_oct_details?.rate ?? 0)}/s` },
];

export function Connections() {
  const { data, error, wanted, onSort, sorting } = usePagedList("connections", { sort: "name" });
  return html`<h1 tabindex="-1">Connections</h1><${Search} wanted=${wanted} label="Search" total=${data ? `${count(data.filtered_count)} of ${count(data.total_count)} connections` : ""} /><${Problem} error=${error} />
    ${data ? (data.items.length ? html`<${Table} caption="Connections" columns=${COLUMNS} rows=${data.items} keyOf=${(row) => row.name} sorting=${sorting} onSort=${onSort} /><${Pages} data=${data} />` : html`<${Empty}>No connections.<//>`) : ""}`;
}

function Channels({ name }) {
  const [channels, error] = usePoll(`connections/${path(name)}/channels`);
  const columns = [
    { title: "Channel", show: (row) => row.number },
    { title: "Mode", show: (row) => html`${row.confirm ? html`<${Badge}>confirms<//>` : ""}${row.transactional ? html`<${Badge}>transactions<//>` : ""}${row.state === "flow" ? html`<${Badge} kind="warning">stopped by the client<//>` : ""}` },
    { title: "Consumers", numeric: true, show: (row) => count(row.consumer_count) },
    { title: "Prefetch", numeric: true, show: (row) => `${row.prefetch_count || "no limit"}${row.global_prefetch_count ? `, ${row.global_prefetch_count} in all` : ""}` },
    { title: "Unacknowledged", numeric: true, show: (row) => count(row.messages_unacknowledged) },
    { title: "Unconfirmed", numeric: true, show: (row) => count(row.messages_unconfirmed) },
    { title: "Published", numeric: true, show: (row) => rate(rateOf(row, "publish")) },
    { title: "Delivered", numeric: true, show: (row) => rate(rateOf(row, "deliver_get")) },
    { title: "Acknowledged", numeric: true, show: (row) => rate(rateOf(row, "ack")) },
  ];
  return html`<${Problem} error=${error} />${channels ? html`<${Table} caption="Channels" columns=${columns} rows=${channels} keyOf=${(row) => row.number} />` : ""}`;
}

function Sessions({ name }) {
  const [sessions, error] = usePoll(`connections/${path(name)}/sessions`);
  const incoming = [
    { title: "Link", show: (row) => row.link_name },
    { title: "Target", show: (row) => row.target ?? `${row.target_exchange ?? "anonymous"} ${row.target_routing_key ?? ""}` },
    { title: "Credit", numeric: true, show: (row) => count(row.credit) },
    { title: "Unconfirmed", numeric: true, show: (row) => count(row.unconfirmed_messages) },
  ];
  const outgoing = [
    { title: "Link", show: (row) => row.link_name },
    { title: "Source", show: (row) => shown(row.source_address ?? row.queue_name ?? row.source ?? "") },
    { title: "Credit", numeric: true, show: (row) => count(row.credit) },
  ];
  return html`<${Problem} error=${error} />${(sessions ?? []).map((session) => html`<section key=${session.channel_number}><h3>Session ${session.channel_number}</h3><p>${count(session.outgoing_unsettled_deliveries)} unsettled deliveries</p>
    ${session.incoming_links.length ? html`<${Table} caption="Links that publish" columns=${incoming} rows=${session.incoming_links} keyOf=${(row) => row.handle} />` : ""}
    ${session.outgoing_links.length ? html`<${Table} caption="Links that consume" columns=${outgoing} rows=${session.outgoing_links} keyOf=${(row) => row.handle} />` : ""}</section>`)}`;
}

export function Connection({ parts }) {
  const [name] = parts;
  const [reason, setReason] = useState("");
  const [connection, error] = usePoll(`connections/${path(name)}?${historyOf("minute", ["data_rates"])}`);
  return html`<h1 tabindex="-1">Connection ${name}</h1><${Problem} error=${error} />${connection ? html`
    <${Facts} facts=${[["User", connection.user], ["Virtual host", connection.vhost], ["Protocol", connection.protocol], ["Log-in", connection.auth_mechanism], ["State", connection.state], ["TLS", connection.ssl ? `${connection.ssl_protocol} ${connection.ssl_cipher}` : "no"], ["Certificate", connection.peer_cert_subject], ["Heartbeat", connection.timeout ? `${connection.timeout} s` : "none"], ["Largest frame", bytes(connection.frame_max)], ["Since", connection.connected_at ? new Date(connection.connected_at).toLocaleString() : ""],
      ...Object.entries(connection.client_properties ?? {}).filter(([, value]) => typeof value !== "object").map(([key, value]) => [key, shown(value)])]} />
    <div class="plots"><${Plot} title="Bytes a second" unit="bytes" lines=${[{ title: "in", details: connection.recv_oct_details, isRate: true }, { title: "out", details: connection.send_oct_details, isRate: true }]} /></div>
    <${Section} title=${connection.protocol?.includes("1-0") || connection.protocol?.includes("1.0") ? "Sessions and links" : `Channels (${count(connection.channels)})`} open=${true}>${connection.protocol?.includes("1-0") || connection.protocol?.includes("1.0") ? html`<${Sessions} name=${name} />` : html`<${Channels} name=${name} />`}<//>
    <${Section} title="Close"><${AskingButton} label="Close the connection" title="Close this connection?" act=${() => request("DELETE", `connections/${path(name)}`, undefined, { headers: reason ? { "x-reason": String.fromCharCode(...new TextEncoder().encode(reason)) } : {} })} after=${() => { location.hash = link("connections"); }}>
      <p>Unacknowledged messages return to their queues. The client may connect again.</p><label class="field"><span>Reason<small>the client gets it</small></span><input value=${reason} onInput=${(event) => setReason(event.target.value)} maxlength="200" /></label><//><//>` : ""}`;
}
