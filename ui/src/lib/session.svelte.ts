// The logged-in user. Scripts cannot read the cookie; the server describes its session.
import { ask } from './api'

// What a screen or a button requires: a scope, or the operator (an admin of the first tenant).
export type Need = 'jobs:read' | 'jobs:write' | 'admin' | 'operator'

export type Who = {
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
  who = $state<Who | null>(null)
  isKnown = $state(false)

  async find(): Promise<void> {
    try {
      this.who = await ask<Who>('GET', '/v1/session')
    } catch {
      this.who = null
    }
    this.isKnown = true
  }

  async logIn(key: string): Promise<void> {
    this.who = await ask<Who>('POST', '/v1/session', { body: { key } })
  }

  async logOut(): Promise<void> {
    try {
      await ask('DELETE', '/v1/session')
    } finally {
      this.end()
    }
  }

  end(): void {
    this.who = null
  }

  may(scope: string): boolean {
    if (scope === 'operator') return this.who?.is_operator ?? false
    return this.who?.scopes.includes(scope) ?? false
  }
}

export const session = new Session()
