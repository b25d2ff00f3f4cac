// The logged-in user. Scripts cannot read the cookie; the server describes its session.
import { ask } from './api'

// What a screen or a button requires: a scope, or the operator (an admin of the first tenant).
export type Need = 'jobs:read' | 'jobs:write' | 'admin' | 'operator'

export type SessionInfo = {
  tenant: number
  tenant_name: string
  key_id: string
  key_name: string
  scopes: string[]
  is_operator: boolean
  csrf: string | null
  version: string
}

class Session {
  current = $state<SessionInfo | null>(null)
  isKnown = $state(false)

  async find(): Promise<void> {
    try {
      this.current = await ask<SessionInfo>('GET', '/v1/session')
    } catch {
      this.current = null
    }
    this.isKnown = true
  }

  async logIn(key: string): Promise<void> {
    this.current = await ask<SessionInfo>('POST', '/v1/session', { body: { key } })
  }

  async logOut(): Promise<void> {
    try {
      await ask('DELETE', '/v1/session')
    } finally {
      this.end()
    }
  }

  end(): void {
    this.current = null
  }

  may(scope: string): boolean {
    if (scope === 'operator') return this.current?.is_operator ?? false
    return this.current?.scopes.includes(scope) ?? false
  }
}

export const session = new Session()
