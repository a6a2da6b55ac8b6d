import { DurableObject } from "cloudflare:workers";

/** The object of a key. Bind it as SEMEL. It sends the key's requests on to the upstream, one at a time. */
export class SemelObject extends DurableObject {
  fetch(request: Request): Promise<Response>;
  alarm(): Promise<void>;
  webSocketMessage(socket: WebSocket, message: string | ArrayBuffer): Promise<void>;
  webSocketClose(socket: WebSocket): void;
  webSocketError(socket: WebSocket): void;
}

/** The object that lists the keys. Bind it as REGISTRY. */
export class SemelRegistry extends DurableObject {}

/** The Worker. Its upstream is the origin in the setting `SEMEL_UPSTREAM`, or the service bound as UPSTREAM. */
declare const upstream: {
  fetch(request: Request, env: object): Promise<Response>;
};
export default upstream;
