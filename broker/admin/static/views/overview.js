// The state of the whole broker: numbers, plots, and the queues that need an operator.

import { html, useState, usePoll, Problem, Table, Badge, Plot, SpanChoice, historyOf, link, count, rate, rateOf, bytes, duration, Empty, Facts } from "../parts.js";

const REASONS = { "no consumers": "warning", "old messages": "warning", growing: "warning", "dead letters wait": "danger" };

function Tiles({ overview, node }) {
  const totals = overview.object_totals ?? {};
  const lengths = overview.queue_totals ?? {};
  const tiles = [
    ["Ready", count(lengths.messages_ready)],
    ["Unacknowledged", count(lengths.messages_unacknowledged)],
    ["Published", rate(rateOf(overview, "publish"))],
    ["Delivered", rate(rateOf(overview, "deliver_get"))],
    ["Acknowledged", rate(rateOf(overview, "ack"))],
    ["Queues", count(totals.queues)],
    ["Consumers", count(totals.consumers)],
    ["Connections", count(totals.connections)],
    ["Channels", count(totals.channels)],
  ];
  if (node) {
    tiles.push(["Memory", bytes(node.mem_used)], ["Free disk space", bytes(node.disk_free)], ["Up for", duration(node.uptime / 1000)]);
  }
  return html`<dl class="tiles">${tiles.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

function Attention() {
  const [found, error] = usePoll("attention");
  const columns = [
    { title: "Queue", show: (row) => html`<a href=${link("queue", row.vhost, row.name)}>${row.name}</a>` },
    { title: "Virtual host", show: (row) => row.vhost },
    { title: "Why", show: (row) => row.reasons.map((reason) => html`<${Badge} kind=${REASONS[reason]}>${reason}<//>`) },
    { title: "Messages", numeric: true, show: (row) => count(row.messages) },
    { title: "Growth", numeric: true, show: (row) => rate(row.growth) },
    { title: "First message", numeric: true, show: (row) => duration(row.head_age) },
    { title: "Consumers", numeric: true, show: (row) => count(row.consumers) },
  ];
  return html`<section class="panel"><h2>Queues that need attention</h2><${Problem} error=${error} />
    ${found && found.queues.length === 0 ? html`<${Empty}>None: no queue grows, waits for a consumer, or has old messages.<//>` : ""}
    ${found && found.queues.length > 0 ? html`<${Table} caption="Queues that need attention" columns=${columns} rows=${found.queues} keyOf=${(row) => `${row.vhost}/${row.name}`} />
      ${found.count > found.queues.length ? html`<p class="empty">${count(found.count)} queues in all.</p>` : ""}` : ""}
  </section>`;
}

export function Overview() {
  const [span, setSpan] = useState("minute");
  const [overview, error] = usePoll(`overview?${historyOf(span, ["lengths", "msg_rates"])}`);
  const [nodes] = usePoll("nodes");
  const node = nodes?.[0];
  const stats = overview?.message_stats ?? {};
  const lengths = overview?.queue_totals ?? {};
  return html`<h1 tabindex="-1">Overview</h1><${Problem} error=${error} />
    ${overview ? html`<${Tiles} overview=${overview} node=${node} />
      <${SpanChoice} span=${span} onChange=${setSpan} />
      <div class="plots">
        <${Plot} key=${`r${span}`} title="Messages a second" lines=${[
          { title: "published", details: stats.publish_details, isRate: true },
          { title: "delivered", details: stats.deliver_get_details, isRate: true },
          { title: "acknowledged", details: stats.ack_details, isRate: true },
          { title: "redelivered", details: stats.redeliver_details, isRate: true },
        ]} />
        <${Plot} key=${`d${span}`} title="Messages in queues" lines=${[
          { title: "ready", details: lengths.messages_ready_details },
          { title: "unacknowledged", details: lengths.messages_unacknowledged_details },
          { title: "waiting", details: lengths.messages_held_details },
        ]} />
      </div>
      <${Attention} />
      <section class="panel"><h2>Broker</h2><${Facts} facts=${[
        ["Node", overview.node],
        ["Version", `${overview.product_name} ${overview.product_version} (${overview.flavour}), HTTP API of RabbitMQ ${overview.management_version}`],
        ["Name", overview.cluster_name],
        ["Memory", node ? `${bytes(node.mem_used)}${node.mem_limit ? ` of ${bytes(node.mem_limit)}` : ""}` : ""],
        ["Disk", node ? `${bytes(node.disk_free)} free, publishers wait below ${bytes(node.disk_free_limit)}` : ""],
        ["File descriptors", node ? `${count(node.fd_used)} of ${count(node.fd_total)}` : ""],
        ["Listeners", (overview.listeners ?? []).map((each) => `${each.protocol} ${each.ip_address}:${each.port}`).join(", ")],
      ]} /></section>` : ""}`;
}
