%% The product: what one request does in a real CPython, the next one cannot see. Tenants take turns
%% in a pool of one slot, so that each gets the memory the one before it left.
-module(isolation_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> [{timetrap, {minutes, 120}}].

-define(MIB, 1048576).
-define(PAGE, 65536).

init_per_suite(Config) ->
    Reactor = reactor(os:getenv("PY_REACTOR_DIR")),
    [{reactor, Reactor}, {artifact, prepare(Reactor, Config)} | Config].

%% The guest that the script built before, or builds (some minutes); its last line is the folder.
reactor(false) ->
    Script = filename:join([wasmtime_test:root(), "scripts", "build-py-reactor.sh"]),
    Dir = lists:last(["" | string:lexemes(os:cmd(Script ++ " 2>/dev/null"), "\n")]),
    ?assert(filelib:is_file(filename:join(Dir, "reactor.wasm")), {run, Script}),
    Dir;
reactor(Dir) ->
    Dir.

end_per_suite(_) -> ok.

%% Initialized once, compiled once, and loaded from the file by every case.
prepare(Reactor, Config) ->
    {ok, Wasm} = file:read_file(filename:join(Reactor, "reactor.wasm")),
    Root = request(Config, "init", "def main(context): pass"),
    {ok, Snapshot} = wasmtime_test:preinit(Wasm, options(Reactor, Root, Root),
                                      ["_initialize", "init"]),
    {ok, Mod} = wasmtime:compile(Snapshot),
    {ok, Artifact} = wasmtime:serialize(Mod),
    wasmtime_test:write(Root, "reactor.cwasm", Artifact).

options(Reactor, Root, Tmp) ->
    #{wasi => #{dirs => [{"/", Root, read}, {"/lib", filename:join(Reactor, "lib"), read},
                         {"/tmp", Tmp, write}],
                env => [{"PYTHONHASHSEED", "0"}], clocks => monotonic, stderr => capture},
      imports => #{{<<"worker">>, <<"result">>} => fun result/2,
                   {<<"hornbeam">>, <<"call">>} => fun host_call/2,
                   {<<"hornbeam">>, <<"take">>} => fun take/2}}.

result(Inst, [Ptr, Length]) ->
    {ok, Answer} = wasmtime:read_memory(Inst, Ptr, Length),
    put(answer, Answer),
    {ok, []}.

%% The host answers with what it was asked.
host_call(Inst, [_, _, Ptr, Length]) ->
    {ok, Payload} = wasmtime:read_memory(Inst, Ptr, Length),
    put(payload, Payload),
    {ok, [Length]}.

take(Inst, [Ptr, Length]) ->
    ok = wasmtime:write_memory(Inst, Ptr, erase(payload)),
    {ok, [Length]}.

%% A request's folder.
request(Config, Name, Python) ->
    Unique = Name ++ integer_to_list(erlang:unique_integer([positive])),
    Root = filename:join([proplists:get_value(priv_dir, Config), Unique, "root"]),
    ok = filelib:ensure_dir(filename:join(Root, "x")),
    wasmtime_test:write(Root, "main.py", Python),
    wasmtime_test:write(Root, "context.json", <<"{}">>),
    Root.

with_python(Config, Fun) ->
    Keeps = wasmtime_test:rounds([2 * ?MIB], [0, 2 * ?MIB], [0, ?MIB, 2 * ?MIB, 128 * ?MIB]),
    [begin
         Pool = wasmtime_test:pool(#{instances => 1, max_memory => 256 * ?MIB,
                                     keep_resident => Keep}),
         {ok, Mod} = wasmtime:deserialize_file(proplists:get_value(artifact, Config), Pool),
         Fun(Mod),
         ?assertMatch(#{used := 0}, wasmtime:pool_info(Mod)),
         ?assertMatch(#{verify_failures := 0}, wasmtime_test:restored(Mod))
     end || Keep <- Keeps].

%% One tenant: the program's answer, and what Look sees of the instance afterwards.
tenant(Config, Mod, Python) -> tenant(Config, Mod, Python, fun(_) -> ok end).

tenant(Config, Mod, Python, Look) ->
    Root = request(Config, "tenant", Python),
    Tmp = filename:join(Root, "tmp"),
    ok = filelib:ensure_dir(filename:join(Tmp, "x")),
    {ok, Inst} = wasmtime_test:instantiate(Mod, options(proplists:get_value(reactor, Config), Root, Tmp)),
    try
        ?assertEqual({ok, [0]}, wasmtime:call(Inst, <<"handle">>, [], #{timeout => 60_000})),
        Answer = erase(answer),
        Look(Inst),
        Answer
    after
        wasmtime:destroy(Inst)
    end.

memory(Inst) ->
    {ok, {_, Bytes}} = wasmtime:memory_size(Inst),
    {ok, Memory} = wasmtime:read_memory(Inst, 0, Bytes),
    Memory.

%% The memory that a tenant starts with.
first_memory(Config, Mod) ->
    Root = request(Config, "first", ""),
    {ok, Inst} = wasmtime_test:instantiate(Mod, options(proplists:get_value(reactor, Config), Root, Root)),
    try memory(Inst) after wasmtime:destroy(Inst) end.

%% ---- cases ----------------------------------------------------------------------------------

%% Python's own state: modules, builtins, classes, interned names.
t_globals(Config) ->
    with_python(Config, fun(Mod) ->
        Leak = "import builtins, json, sys\n"
               "def main(context):\n"
               "    seen = [hasattr(builtins, 'leak'), hasattr(json, 'leak'), 'leak' in sys.modules,\n"
               "            'leak' in sys.path, json.dumps([]) != '[]']\n"
               "    builtins.leak = json.leak = sys.modules['leak'] = 1\n"
               "    sys.path.append('leak')\n"
               "    json.dumps = lambda x: 'leaked'\n"
               "    return seen\n",
        Clean = <<"{\"ok\":[false,false,false,false,false]}">>,
        [?assertEqual(Clean, nospace(tenant(Config, Mod, Leak))) || _ <- lists:seq(1, 5)]
    end).

nospace(Json) -> binary:replace(Json, <<" ">>, <<>>, [global]).

%% Files that a tenant wrote into its own folder, and handles it left open.
t_files(Config) ->
    with_python(Config, fun(Mod) ->
        Leak = "import os, builtins\n"
               "def main(context):\n"
               "    seen = os.listdir('/tmp')\n"
               "    builtins.kept = [open('/tmp/secret%d' % i, 'w') for i in range(20)]\n"
               "    builtins.kept[0].write('secret')\n"
               "    return seen\n",
        [?assertEqual(<<"{\"ok\":[]}">>, nospace(tenant(Config, Mod, Leak))) || _ <- lists:seq(1, 5)]
    end).

%% The bytes themselves: a token that fills megabytes of one tenant is nowhere in the next.
t_memory_pattern(Config) ->
    Token = binary:encode_hex(rand:bytes(16)),
    Leak = ["kept = []\n"
            "def main(context):\n"
            "    token = '", binary:part(Token, 0, 16), "' + '", binary:part(Token, 16, 16), "'\n"
            "    kept.append(token * 100000)\n"
            "    kept.extend((token + str(i)).encode() for i in range(20000))\n"
            "    return len(kept)\n"],
    with_python(Config, fun(Mod) ->
        First = first_memory(Config, Mod),
        [begin
             ?assertEqual(<<"{\"ok\":20001}">>, nospace(tenant(Config, Mod, Leak, fun(Inst) ->
                 ?assertMatch({_, _}, binary:match(memory(Inst), Token))
             end))),
             Next = first_memory(Config, Mod),
             ?assertEqual(nomatch, binary:match(Next, Token)),
             ?assert(First =:= Next)
         end || _ <- lists:seq(1, 3)]
    end).

%% Pages written at random, all over the memory: the next tenant has the image, and works.
t_random_pages(Config) ->
    with_python(Config, fun(Mod) ->
        First = first_memory(Config, Mod),
        [begin
             tenant(Config, Mod, "def main(context): return 1\n", fun scribble/1),
             ?assert(First =:= first_memory(Config, Mod)),
             ?assertEqual(<<"{\"ok\":1}">>,
                          nospace(tenant(Config, Mod, "def main(context): return 1\n")))
         end || _ <- lists:seq(1, wasmtime_test:rounds(5, 20, 300))]
    end).

scribble(Inst) ->
    {ok, {_, Bytes}} = wasmtime:memory_size(Inst),
    [ok = wasmtime:write_memory(Inst, rand:uniform(Bytes - 4096) - 1, rand:bytes(rand:uniform(4096)))
     || _ <- lists:seq(1, rand:uniform(300))].

%% Memory that a tenant grew is not there for the next, and zero when the next grows as well.
t_grown_memory(Config) ->
    Grow = "kept = []\n"
           "def main(context):\n"
           "    kept.append(bytearray(b'\\xab' * (40 << 20)))\n"
           "    return len(kept[0])\n",
    Look = "kept = []\n"
           "def main(context):\n"
           "    kept.append(bytearray(40 << 20))\n"
           "    return kept[0].count(b'\\xab' * 8)\n",
    with_python(Config, fun(Mod) ->
        Size = byte_size(first_memory(Config, Mod)),
        [begin
             ?assertEqual(<<"{\"ok\":41943040}">>, nospace(tenant(Config, Mod, Grow, fun(Inst) ->
                 {ok, {_, Bytes}} = wasmtime:memory_size(Inst),
                 ?assert(Bytes > Size)
             end))),
             ?assertEqual(Size, byte_size(first_memory(Config, Mod))),
             ?assertEqual(<<"{\"ok\":0}">>, nospace(tenant(Config, Mod, Look)))
         end || _ <- [1, 2]]
    end).

%% A tenant that raises, and one that is cut off, leave no more behind than others.
t_failures(Config) ->
    with_python(Config, fun(Mod) ->
        First = first_memory(Config, Mod),
        Raise = "def main(context): raise ValueError('mine')\n",
        ?assertMatch({_, _}, binary:match(tenant(Config, Mod, Raise), <<"ValueError: mine">>)),
        ?assert(First =:= first_memory(Config, Mod)),
        Root = request(Config, "endless", "def main(context):\n    while True: pass\n"),
        Reactor = proplists:get_value(reactor, Config),
        {ok, Inst} = wasmtime_test:instantiate(Mod, options(Reactor, Root, Root)),
        ?assertMatch({error, #{class := trap, kind := timeout}},
                     wasmtime:call(Inst, <<"handle">>, [], #{timeout => 200})),
        ok = wasmtime:destroy(Inst),
        ?assert(First =:= first_memory(Config, Mod))
    end).

%% The host call works in both directions, with every length.
t_host_call(Config) ->
    Python = "import _hornbeam\n"
             "def main(context):\n"
             "    for n in (0, 1, 1000, 100000):\n"
             "        assert _hornbeam.call('echo', b'x' * n) == b'x' * n\n"
             "    return 'fine'\n",
    with_python(Config, fun(Mod) ->
        ?assertEqual(<<"{\"ok\":\"fine\"}">>, nospace(tenant(Config, Mod, Python)))
    end).

%% Every tenant draws its own random numbers.
t_random_numbers(Config) ->
    Python = "import random\ndef main(context): return random.random()\n",
    with_python(Config, fun(Mod) ->
        Numbers = [tenant(Config, Mod, Python) || _ <- lists:seq(1, 5)],
        ?assertEqual(5, length(lists:usort(Numbers)))
    end).
