%% A real CPython whose standard streams are streamed: a line that it prints arrives at once, and it
%% reads, and waits for, what it is sent.
-module(python_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-import(stream_SUITE, [streamed/1, next/1]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> [{timetrap, {minutes, 120}}].

%% Initialized with the streams that it gets later: Python looks then whether it writes to a terminal.
init_per_suite(Config) ->
    Reactor = isolation_SUITE:reactor(os:getenv("PY_REACTOR_DIR")),
    Root = isolation_SUITE:request(Config, "init", "def main(context): pass"),
    {ok, Wasm} = file:read_file(filename:join(Reactor, "reactor.wasm")),
    {ok, Snapshot} = wasmtime_test:preinit(Wasm, options(Reactor, Root), ["_initialize", "init"]),
    {ok, Mod} = wasmtime:compile(Snapshot),
    [{reactor, Reactor}, {mod, Mod} | Config].

end_per_suite(_) -> ok.

options(Reactor, Root) ->
    #{wasi := Wasi} = Options = isolation_SUITE:options(Reactor, Root, Root),
    Options#{wasi := Wasi#{stdin => stream, stdout => stream, stderr => stream}}.

%% A program that runs in a process of its own: Look talks with it meanwhile.
run(Config, Program, Look) ->
    Root = isolation_SUITE:request(Config, "stream", Program),
    Mod = proplists:get_value(mod, Config),
    {ok, Inst} = wasmtime_test:instantiate(Mod, options(proplists:get_value(reactor, Config), Root)),
    {Pid, Monitor} = wasmtime_test:caller(fun() ->
        {wasmtime:call(Inst, <<"handle">>, [], #{timeout => 60_000}), erase(answer)}
    end),
    Look(Inst),
    Result = receive {Pid, Ended} -> Ended end,
    receive {'DOWN', Monitor, _, _, _} -> ok end,
    ?assertEqual([], [Message || {stderr, _} = Message <- streamed(Inst)]),
    ok = wasmtime:destroy(Inst),
    Result.

%% print() arrives while the program waits for the answer, whole line by whole line.
t_print_arrives_at_once(Config) ->
    Program = "import sys\n"
              "def main(context):\n"
              "    print('your', 'name?')\n"
              "    name = sys.stdin.readline()\n"
              "    print('hello', name.strip())\n"
              "    return [sys.stdout.isatty(), sys.stdin.isatty(), sys.stdin.read()]\n",
    Result = run(Config, Program, fun(Inst) ->
        ?assertEqual({stdout, <<"your name?\n">>}, next(Inst)),
        ok = wasmtime:send(Inst, <<"ada\nthe">>),
        ?assertEqual({stdout, <<"hello ada\n">>}, next(Inst)),
        ok = wasmtime:send(Inst, <<" rest">>),
        ok = wasmtime:close(Inst)
    end),
    ?assertMatch({{ok, [0]}, <<"{\"ok\":", _/binary>>}, Result),
    {_, Answer} = Result,
    ?assertNotEqual(nomatch, re:run(Answer, "\\[true, *false, *\"the rest\"\\]")).

%% select() sees no input, waits for some, and sees it.
t_select(Config) ->
    Program = "import os, select\n"
              "def main(context):\n"
              "    before = len(select.select([0], [], [], 0)[0])\n"
              "    print('waiting')\n"
              "    ready = len(select.select([0], [], [], None)[0])\n"
              "    return [before, ready, os.read(0, 100).decode()]\n",
    {Code, Answer} = run(Config, Program, fun(Inst) ->
        ?assertEqual({stdout, <<"waiting\n">>}, next(Inst)),
        ok = wasmtime:send(Inst, <<"now">>)
    end),
    ?assertEqual({ok, [0]}, Code),
    ?assertNotEqual(nomatch, re:run(Answer, "\\[0, *1, *\"now\"\\]")).
