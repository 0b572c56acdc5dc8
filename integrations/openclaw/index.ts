/**
 * Sends session, turn type and the end of a session to the Rejoinder gateway.
 *
 * OpenClaw says what started a run to hooks, and asks for headers per request. The plugin keeps the
 * first until the second is asked for. Requests themselves go OpenClaw's own way.
 */
import { definePluginEntry } from "openclaw/plugin-sdk/plugin-entry";

const PROVIDER = "rejoinder";

/** Runs in which no person speaks: their requests are served and never train. */
const SIDE_TRIGGERS = new Set(["cron", "heartbeat", "manual", "memory", "overflow"]);

/** A process that serves for months must not remember every session it has seen. */
const MOST_SESSIONS = 1000;

/** OpenClaw waits two seconds for the ends of all sessions when it shuts down. */
const DONE_TIMEOUT_MS = 1500;

type TurnType = "main" | "side";

/** Of what kind the requests of each session are now. */
class Sessions {
  readonly #runs = new Map<string, TurnType>();
  readonly #compacting = new Set<string>();

  begin(sessionId: string, trigger: string | undefined): void {
    this.forget(sessionId);
    if (trigger === "user") this.#runs.set(sessionId, "main");
    else if (trigger !== undefined && SIDE_TRIGGERS.has(trigger)) this.#runs.set(sessionId, "side");
    const oldest = this.#runs.keys().next();
    if (this.#runs.size > MOST_SESSIONS && !oldest.done) this.forget(oldest.value);
  }

  /** A summary is asked for, perhaps amidst a run; one that fails has no end but the next run. */
  compact(sessionId: string, begins: boolean): void {
    if (begins) this.#compacting.add(sessionId);
    else this.#compacting.delete(sessionId);
  }

  forget(sessionId: string): void {
    this.#runs.delete(sessionId);
    this.#compacting.delete(sessionId);
  }

  /** A request of a run that nobody has announced the gateway judges by its text. */
  headers(sessionId: string | undefined): Record<string, string> {
    if (sessionId === undefined) return {};
    const type = this.#compacting.has(sessionId) ? "side" : this.#runs.get(sessionId);
    return { "X-Session-Id": sessionId, ...(type && { "X-Turn-Type": type }) };
  }
}

export default definePluginEntry({
  id: "rejoinder",
  name: "Rejoinder",
  description: "Names sessions and turn types to the Rejoinder gateway",
  register(api) {
    const sessions = new Sessions();

    api.registerProvider({
      id: PROVIDER,
      label: "Rejoinder",
      auth: [],
      resolveTransportTurnState: ({ sessionId }) => ({ headers: sessions.headers(sessionId) }),
    });

    api.on("before_model_resolve", (_event, { sessionId, trigger }) => {
      if (sessionId !== undefined) sessions.begin(sessionId, trigger);
    });

    api.on("before_compaction", (_event, { sessionId }) => {
      if (sessionId !== undefined) sessions.compact(sessionId, true);
    });

    api.on("after_compaction", (_event, { sessionId }) => {
      if (sessionId !== undefined) sessions.compact(sessionId, false);
    });

    api.on("session_end", async ({ sessionId, reason }) => {
      sessions.forget(sessionId);
      // These go on: after a restart, or with a summary in place of what was said.
      if (reason === "restart" || reason === "shutdown" || reason === "compaction") return;
      const provider = api.config.models?.providers?.[PROVIDER];
      if (provider?.baseUrl === undefined) return;
      try {
        const response = await fetch(`${provider.baseUrl}/sessions/done`, {
          method: "POST",
          headers: {
            "X-Session-Id": sessionId,
            ...(typeof provider.apiKey === "string" && {
              Authorization: `Bearer ${provider.apiKey}`,
            }),
          },
          signal: AbortSignal.timeout(DONE_TIMEOUT_MS),
        });
        const unknown = response.status === 404; // nothing was asked in it
        if (!response.ok && !unknown) api.logger.warn(`session end not taken: HTTP ${response.status}`);
      } catch (error) {
        // The gateway closes sessions by itself after a while; OpenClaw must not suffer.
        api.logger.warn(`session end not sent: ${String(error)}`);
      }
    });
  },
});
