// The frame of the page: the log-in, the navigation, and the view that the address names.

import { html, render, useRoute, useEffect, useState, useAction, usePoll, Problem, link, Empty } from "./parts.js";
import { request, get, whenLoggedOut } from "./api.js";
import { Overview } from "./views/overview.js";
import { Queues, NewQueue } from "./views/queues.js";
import { Queue } from "./views/queue.js";
import { Exchanges, Exchange } from "./views/exchanges.js";
import { Connections, Connection } from "./views/connections.js";
import { Streams, Delayed, DeadLetters } from "./views/kinds.js";
import { Forwarding } from "./views/forwarding.js";
import { People, User, VirtualHosts } from "./views/people.js";
import { Policies } from "./views/policies.js";
import { Definitions, Journal, Audit } from "./views/records.js";

const VIEWS = [
  ["overview", "Overview", Overview],
  ["queues", "Queues", Queues],
  ["exchanges", "Exchanges", Exchanges],
  ["streams", "Streams", Streams],
  ["connections", "Connections", Connections],
  ["delayed", "Delayed", Delayed],
  ["dead-letters", "Dead letters", DeadLetters],
  ["forwarding", "Forwarding", Forwarding],
  ["vhosts", "Virtual hosts", VirtualHosts],
  ["users", "Users", People],
  ["policies", "Policies", Policies],
  ["definitions", "Definitions", Definitions],
  ["journal", "Journal", Journal],
  ["audit", "Audit", Audit],
];
const SINGLE = { queue: Queue, exchange: Exchange, connection: Connection, user: User, "new-queue": NewQueue };
const OF = { queue: "queues", exchange: "exchanges", connection: "connections", user: "users", "new-queue": "queues" };

function LogIn({ onDone }) {
  const [busy, error, , run] = useAction();
  const submit = (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    run(async () => onDone(await request("POST", "login", { username: form.get("username"), password: form.get("password") })));
  };
  return html`<main class="login panel"><h1>amqpd</h1>
    <form onSubmit=${submit}>
      <label class="field"><span>User</span><input name="username" autocomplete="username" required autofocus /></label>
      <label class="field"><span>Password</span><input name="password" type="password" autocomplete="current-password" /></label>
      <${Problem} error=${error && { message: error.status === 401 ? (error.message === "Not_Authorized" ? "The user or the password is wrong." : "This user has none of the tags administrator, policymaker, monitoring and management.") : error.message }} />
      <button type="submit" disabled=${busy}>Log in</button>
    </form></main>`;
}

function Alarm() {
  const [ready] = usePoll("health/checks/alarms", 10);
  return ready && ready.status !== "ok" ? html`<p class="alarm" role="alert">${ready.reason}</p>` : null;
}

function Frame({ user, onLogOut }) {
  const route = useRoute();
  const name = route.parts[0] ?? "overview";
  const section = OF[name] ?? name;
  const View = SINGLE[name] ?? VIEWS.find(([each]) => each === name)?.[2];
  const title = [VIEWS.find(([each]) => each === section)?.[1] ?? "", ...route.parts.slice(1)].filter(Boolean).join(" · ");
  useEffect(() => {
    document.title = `${title} · amqpd`;
    document.querySelector("h1")?.focus();
  }, [title]);
  useEffect(() => {
    const key = (event) => {
      const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? "");
      if (event.key === "/" && !typing) {
        const search = document.querySelector("[data-search]");
        if (search) { event.preventDefault(); search.focus(); }
      }
    };
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  }, []);
  return html`<a class="skip" href="#content" onClick=${(event) => { event.preventDefault(); document.querySelector("main h1")?.focus(); }}>Skip to the content</a>
    <div class="frame"><header class="top"><a class="brand" href=${link("overview")}>amqpd</a>
      <nav class="main" aria-label="Views"><ul>${VIEWS.map(([each, label]) => html`<li><a href=${link(each)} aria-current=${each === section ? "page" : undefined}>${label}</a></li>`)}</ul></nav>
      <div class="who"><span>${user.name}</span><button type="button" onClick=${onLogOut}>Log out</button></div>
    </header>
    <main id="content"><${Alarm} />${View ? html`<${View} key=${route.parts.join("/")} parts=${route.parts.slice(1)} query=${route.query} user=${user} />` : html`<h1 tabindex="-1">No such view</h1><${Empty}>The address names no view of this page.<//>`}</main></div>`;
}

function App() {
  const [user, setUser] = useState(undefined);
  useEffect(() => {
    whenLoggedOut(() => setUser(null));
    get("login").then((me) => setUser(me.name === null ? null : me), () => setUser(null));
  }, []);
  if (user === undefined) return null;
  if (user === null) return html`<${LogIn} onDone=${setUser} />`;
  const logOut = async () => {
    await request("DELETE", "login").catch(() => {});
    setUser(null);
  };
  return html`<${Frame} user=${user} onLogOut=${logOut} />`;
}

render(html`<${App} />`, document.getElementById("app"));
