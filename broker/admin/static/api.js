// Requests to the HTTP API. The session's cookie counts only with the header that says that the page sends it.

export class ApiError extends Error {
  constructor(status, reason) {
    super(reason);
    this.status = status;
  }
}

/** Encode names as segments of a path below /api. */
export const path = (...segments) => segments.map((each) => encodeURIComponent(each)).join("/");

let onLoggedOut = () => {};
export const whenLoggedOut = (call) => { onLoggedOut = call; };

/** Send a request; return the JSON of the answer, or null without one. Throws ApiError with the broker's reason. */
export async function request(method, where, body, options = {}) {
  const headers = { "x-amqpd-page": "1", accept: "application/json" };
  if (body !== undefined && !(body instanceof FormData)) headers["content-type"] = "application/json";
  let answer;
  try {
    answer = await fetch(`/api/${where}`, {
      method,
      headers: { ...headers, ...options.headers },
      credentials: "same-origin",
      cache: "no-store",
      body: body === undefined ? undefined : body instanceof FormData || typeof body === "string" ? body : JSON.stringify(body),
    });
  } catch {
    throw new ApiError(0, "The broker does not answer.");
  }
  const text = await answer.text();
  let content = null;
  try {
    content = text ? JSON.parse(text) : null;
  } catch {
    content = null;
  }
  if (answer.ok) return content;
  if (answer.status === 401 && where !== "login" && (content?.error ?? "") === "not_authorized") onLoggedOut();
  throw new ApiError(answer.status, content?.reason ?? `status ${answer.status}`);
}

export const get = (where) => request("GET", where);
